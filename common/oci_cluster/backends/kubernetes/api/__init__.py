"""The API of Kubernetes: which, as whom, and how it is asked."""
