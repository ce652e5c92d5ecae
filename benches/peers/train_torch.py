"""The training rows in PyTorch: eager steps of gradient descent over preallocated tensors."""

import torch
from torch import nn


def step_of(net, loss, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step():
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            loss(net).backward()
            optimizer.step()

    return step, 1


def classifier(net, images, classes):
    labels = torch.randint(0, classes, (len(images),))
    return step_of(net, lambda net: nn.functional.cross_entropy(net(images), labels), net.parameters())


def mlp():
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return classifier(nn.Sequential(*layers), torch.rand(128, 784), 10)


def lenet():
    layers = [
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10),
    ]  # fmt: skip
    return classifier(nn.Sequential(*layers), torch.rand(64, 1, 28, 28), 10)


class Words(nn.Module):
    """Two layers of 512 units over 35 words of a vocabulary of 10,000."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10_000, 512)
        self.layers = nn.LSTM(512, 512, num_layers=2)
        self.scores = nn.Linear(512, 10_000)

    def forward(self, words):
        return self.scores(self.layers(self.embedding(words))[0]).flatten(0, 1)


def lstm():
    words, following = (torch.randint(0, 10_000, (35, 20)) for _ in range(2))
    net = Words()
    loss = lambda net: nn.functional.cross_entropy(net(words), following.flatten())
    return step_of(net, loss, net.parameters())


ROWS = {"train/mlp": mlp, "train/lenet": lenet, "train/lstm": lstm}
