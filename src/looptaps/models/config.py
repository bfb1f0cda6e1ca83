"""What a latent-reasoning model is made of: frozen, keyword-only, validated on construction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, Self

from looptaps.errors import invalid, unknown
from looptaps.models.layers import swiglu_width

DtypeName = Literal["float32", "bfloat16", "float16", "float64"]
_DTYPE_NAMES = ("float32", "bfloat16", "float16", "float64")
# Fields that may be 0.
_MAY_BE_ZERO = {"puzzle_emb_ndim", "puzzle_emb_len", "halt_exploration_prob"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The fields that all models here share.

    Args:
        vocab_size: how many tokens there are; predictions are in the same tokens.
        seq_len: positions of a puzzle; None accepts any length (attention with rotary positions only).
        hidden_size: features d of each position.
        num_heads: attention heads.
        expansion: SwiGLU's inner width is 2/3 of expansion * width, rounded up to a multiple of 256 ...
        channel_inner: ... unless given here.
        forward_dtype: dtype of the cores' matrix products.
        state_dtype: dtype of the states and heads; None means forward_dtype, as released.
        rms_norm_eps: added to the mean square in every norm.
        rope_theta: base of the rotary frequencies.
    """

    vocab_size: int
    seq_len: int | None
    hidden_size: int = 512
    num_heads: int = 8
    expansion: float = 4.0
    channel_inner: int | None = None
    forward_dtype: DtypeName = "bfloat16"
    state_dtype: DtypeName | None = None
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check(field.name, str(field.type))
        if self.attends and self.hidden_size % self.num_heads:
            raise invalid(self._owner, "num_heads", f"a divisor of hidden_size = {self.hidden_size}", self.num_heads,
                          "Every head has the same width.")

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _check(self, name: str, kind: str) -> None:
        value = getattr(self, name)
        if value is None and "None" in kind:
            return
        least = 0 if name in _MAY_BE_ZERO else 1
        if kind.startswith("int") and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise invalid(self._owner, name, f"a whole number >= {least}", value, "Compare with the released configs.")
        if kind.startswith("float"):
            positive = not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < float("inf")
            if not positive or (value == 0 and name not in _MAY_BE_ZERO):
                raise invalid(self._owner, name, "a finite number > 0", value, "Compare with the released configs.")
            object.__setattr__(self, name, float(value))
        if kind.startswith("bool") and not isinstance(value, bool):
            raise invalid(self._owner, name, "True or False", value, "Compare with the released configs.")
        if kind.startswith("DtypeName") and value not in _DTYPE_NAMES:
            raise invalid(self._owner, name, f"one of {', '.join(_DTYPE_NAMES)}", value,
                          "Released models use 'bfloat16'.")

    @property
    def attends(self) -> bool:
        """Whether positions are mixed by attention."""
        return True

    @property
    def resolved_state_dtype(self) -> DtypeName:
        """The dtype of the states."""
        return self.state_dtype or self.forward_dtype

    @property
    def channel_width(self) -> int:
        """Inner width of the MLP over features."""
        return self.channel_inner or swiglu_width(self.hidden_size, self.expansion)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives the equal object back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        known = {field.name for field in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                raise unknown(f"field of {cls.__name__}", key, known)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class PuzzleConfig(ModelConfig):
    """A model whose input may begin with learned positions that name the puzzle.

    Args:
        num_puzzle_identifiers: how many puzzles have an embedding of their own.
        puzzle_emb_ndim: width of that embedding; 0 leaves the prefix out.
        puzzle_emb_len: positions it fills; 0 means as many as it needs.
        pos_encodings: `rope` (rotary), `learned`, or `none`.
        halt_max_steps: outer loops at which training cuts a sample off.
        halt_exploration_prob: share of training samples that are made to think longer.
    """

    num_puzzle_identifiers: int = 1
    puzzle_emb_ndim: int = 512
    puzzle_emb_len: int = 16
    pos_encodings: Literal["rope", "learned", "none"] = "rope"
    halt_max_steps: int = 16
    halt_exploration_prob: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pos_encodings not in ("rope", "learned", "none"):
            raise invalid(self._owner, "pos_encodings", "one of rope, learned, none", self.pos_encodings,
                          "The default is 'rope'.")
        if self.seq_len is None and (self.pos_encodings == "learned" or not self.attends):
            raise invalid(self._owner, "seq_len", "a whole number >= 1", None,
                          "Only attention without learned positions works at any length.")
        if self.puzzle_emb_ndim > self.prefix * self.hidden_size:
            needed = -(-self.puzzle_emb_ndim // self.hidden_size)
            raise invalid(self._owner, "puzzle_emb_len", f"0 or at least {needed}", self.puzzle_emb_len,
                          "The prefix must hold the whole puzzle embedding.")

    @property
    def prefix(self) -> int:
        """Positions in front of the puzzle's own."""
        if self.puzzle_emb_ndim == 0:
            return 0
        return self.puzzle_emb_len or -(-self.puzzle_emb_ndim // self.hidden_size)

    @property
    def scores(self) -> bool:
        """Whether there is a Q head."""
        return True


@dataclass(frozen=True, kw_only=True)
class MixerConfig(PuzzleConfig):
    """A model that may mix positions without attention.

    Args:
        mlp_t: mix positions by a SwiGLU over them instead of by attention.
        token_inner: inner width of that SwiGLU; None: by `expansion`, as released.
    """

    mlp_t: bool = False
    token_inner: int | None = None

    @property
    def attends(self) -> bool:
        return not self.mlp_t

    @property
    def mixer(self) -> tuple[int, int] | None:
        """Positions and inner width of the token mixer, where there is one."""
        if not self.mlp_t or self.seq_len is None:
            return None
        positions = self.seq_len + self.prefix
        return positions, self.token_inner or swiglu_width(positions, self.expansion)
