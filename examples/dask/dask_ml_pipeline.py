"""dask-ml: scale, cluster, and search parameters, on arrays in chunks."""

import dask.array as da
from dask.distributed import Client
from dask_ml.cluster import KMeans
from dask_ml.metrics import accuracy_score
from dask_ml.model_selection import GridSearchCV, train_test_split
from dask_ml.preprocessing import StandardScaler
from dask_ml.wrappers import Incremental, ParallelPostFit
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression, SGDClassifier

if __name__ == "__main__":
    client = Client()
    points, labels = make_blobs(3_000, centers=4, cluster_std=0.7, random_state=4)
    X, y = da.from_array(points, chunks=(500, 2)), da.from_array(labels, chunks=500)
    X = StandardScaler().fit_transform(X)
    kmeans = KMeans(n_clusters=4, random_state=0).fit(X)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0, shuffle=True)
    incremental = Incremental(SGDClassifier(random_state=0), scoring="accuracy")
    incremental.fit(X_train, y_train, classes=[0, 1, 2, 3])
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": [0.1, 1.0]}, cv=3)
    search.fit(points, labels)
    wrapped = ParallelPostFit(LogisticRegression(max_iter=200)).fit(points, labels)
    score = accuracy_score(y_test, incremental.predict(X_test))
    print(f"clusters {len(kmeans.cluster_centers_)} incremental {score:.1f} search {search.best_score_:.1f}")
    print("predicted", wrapped.predict(X).shape[0])
