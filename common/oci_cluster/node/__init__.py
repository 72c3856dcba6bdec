"""The agent, and all that only it needs. Runs on every node; knows no launcher and no backend."""
