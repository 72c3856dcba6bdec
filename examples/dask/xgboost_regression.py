"""Gradient boosting with XGBoost on data that is spread over the workers."""

import dask.array as da
from dask.distributed import Client
from xgboost import dask as dxgb


def main(client):
    rng = da.random.default_rng(3)
    X = rng.normal(size=(20_000, 10), chunks=(2_500, 10))
    y = 3 * X[:, 0] - 2 * X[:, 1] + X[:, 2] * X[:, 3]
    dtrain = dxgb.DaskQuantileDMatrix(client, X, y)
    params = {"tree_method": "hist", "objective": "reg:squarederror", "max_depth": 5, "eta": 0.3}
    output = dxgb.train(client, params, dtrain, num_boost_round=40, evals=[(dtrain, "train")])
    errors = output["history"]["train"]["rmse"]
    prediction = dxgb.predict(client, output, X)
    residual = float(da.sqrt(((prediction - y) ** 2).mean()).compute())
    print(f"rounds {len(errors)} first error {errors[0]:.1f} last below 1: {errors[-1] < 1} residual {residual:.1f}")

    model = dxgb.DaskXGBRegressor(n_estimators=10, tree_method="hist")
    model.client = client
    model.fit(X, y)
    print("fitted by the estimator", model.get_booster().num_boosted_rounds())


if __name__ == "__main__":
    with Client() as client:
        main(client)
