"""Write scikit-learn's handwritten digits into data/digits.pt, as a stand-in for a data set of your own."""

from pathlib import Path

import torch
from sklearn.datasets import load_digits

digits = load_digits()
path = Path("data", "digits.pt")
path.parent.mkdir(exist_ok=True)
images = torch.tensor(digits.images, dtype=torch.float32) / 16
torch.save({"images": images, "labels": torch.tensor(digits.target)}, path)
print(f"{len(digits.target)} images in {path.resolve()}")
