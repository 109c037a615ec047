"""An installed package with a backbone of its own, as a user would write one."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = """
from torch import nn

from polarvrp.model.conditioning import Conditioning
from polarvrp.model.decoder import PointerDecoder
from polarvrp.model.embedding import NodeEmbedding
from polarvrp.model.heads import PlainHead
from polarvrp.model.linear import Linear
from polarvrp.model.policy import Encoding, Policy
from polarvrp.model.registry import RegisteredBackbone


class Nodewise(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.map = Linear(width, width)

    def forward(self, x, prompt, rotation):
        return Encoding(self.map(x), x.new_zeros(()))


def build(config):
    head = PlainHead(Linear(config.width, config.width))
    decoder = PointerDecoder(config.width, config.heads, state="full", map_logit_keys=False, head=head)
    embedding = NodeEmbedding(config.width, "limit", bias=True)
    return Policy(config, embedding, Conditioning(()), Nodewise(config.width), decoder)


BACKBONE = RegisteredBackbone(("shared",), build)
"""


def install_package(folder: Path) -> dict[str, str]:
    """Put the package into ``folder``, and the study's configuration beside it.

    Returns:
        Environment variables with which Python finds it there.
    """
    (folder / "nodewise.py").write_text(MODULE)
    installed = folder / "nodewise-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: nodewise\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[polarvrp.backbones]\nnodewise = nodewise:BACKBONE\n")
    (folder / "config").symlink_to(ROOT / "config")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
