"""The agent and its parts, on every node; knows no launcher and no backend."""
