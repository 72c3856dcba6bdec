"""scikit-learn on a cluster by joblib's backend: a grid search, and a forest."""

import joblib
from dask.distributed import Client
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

if __name__ == "__main__":
    client = Client(processes=False)
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    search = GridSearchCV(SVC(), {"C": [1, 10], "gamma": [0.0005, 0.001]}, cv=3)
    with joblib.parallel_backend("dask", scatter=[X_train, y_train]):
        search.fit(X_train, y_train)
    forest = RandomForestClassifier(n_estimators=60, random_state=0, n_jobs=-1)
    with joblib.parallel_config(backend="dask"):
        forest.fit(X_train, y_train)
    print("best", search.best_params_)
    print("search above 0.95:", search.score(X_test, y_test) > 0.95)
    print("forest above 0.95:", forest.score(X_test, y_test) > 0.95)
