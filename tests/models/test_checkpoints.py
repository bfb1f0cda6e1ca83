"""Files: the released ones, ours, and every kind of wrong one, each with one clear sentence."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

import looptaps as lt
from looptaps.errors import InvalidFile, InvalidValue, UnknownName
from looptaps.models import bundled, checkpoints

DATA = Path(__file__).parents[1] / "data" / "parity"


@pytest.fixture
def released(tmp_path):
    """released(name, arch changes, weights changes): a copy of a released folder, changed."""

    def build(name="sudoku_mlp", arch=None, change=None):
        folder = tmp_path / name
        shutil.copytree(DATA / name, folder)
        if arch:
            content = yaml.safe_load((folder / "all_config.yaml").read_text())
            content["arch"].update(arch)
            (folder / "all_config.yaml").write_text(yaml.safe_dump(content))
        if change:
            state = torch.load(folder / "step_1", weights_only=True)
            change(state)
            torch.save(state, folder / "step_1")
        return folder / "step_1"

    return build


@pytest.mark.parametrize(("kind", "name", "expected"), [
    ("trm", "sudoku_mlp", (81, 11, True, 16)), ("trm", "maze_att", (None, 6, False, 16)),
    ("hrm", "sudoku_hrm", (None, 11, None, 1)),
])
def test_make_and_sizes_are_read_from_the_file(kind, name, expected):
    config = lt.load_model(kind, DATA / name / "step_1").config
    assert (config.seq_len, config.vocab_size, getattr(config, "mlp_t", None), config.prefix) == expected
    assert config.forward_dtype == "bfloat16"


def test_attention_accepts_any_length_unless_told(batch):
    path = DATA / "maze_att" / "step_1"
    model = lt.load_model("trm", path)
    assert model.begin(batch(2, n=25, vocab=6)).x.shape == (2, 41, 32)
    told = lt.load_model("trm", path, seq_len=36)
    with pytest.raises(lt.errors.InvalidShape, match=r"\(B, 36\)"):
        told.begin(batch(2, n=25, vocab=6))


def test_names_load_with_and_without_the_prefixes_of_compilation(released):
    def strip(state):
        for key in list(state):
            state[key.removeprefix("_orig_mod.").removeprefix("model.")] = state.pop(key)

    assert torch.equal(lt.load_model("trm", released(change=strip)).lm_head.weight,
                       lt.load_model("trm", DATA / "sudoku_mlp" / "step_1").lm_head.weight)


def test_the_variant_is_told_by_the_weights_where_the_config_is_silent(released):
    path = released()
    content = yaml.safe_load((path.parent / "all_config.yaml").read_text())
    del content["arch"]["mlp_t"]
    (path.parent / "all_config.yaml").write_text(yaml.safe_dump(content))
    assert lt.load_model("trm", path).config.mlp_t


def _rename(state, old, new):
    for key in list(state):
        if old in key:
            state[key.replace(old, new)] = state.pop(key)


@pytest.mark.parametrize(("case", "message"), [
    ({"arch": {"mlp_t": False}}, "disagree: the weights are those of the mixer variant"),
    ({"arch": {"hidden_size": 64}}, "has shape .* but its config makes a TRM"),
    ({"arch": {"L_layers": 3}}, "has no weight 'L_level.layers.2"),
    ({"arch": {"L_layers": 1}}, "does not have"),
    ({"arch": {"lambda_": 0.95}}, "Unknown field of TRMConfig 'lambda_'"),
    ({"arch": {"H_cycles": 0}}, "H_cycles must be a whole number >= 1"),
    ({"arch": {"H_cycles": "three"}}, "H_cycles must be a whole number >= 1"),
    ({"arch": {"forward_dtype": "int8"}}, "forward_dtype must be one of"),
    ({"change": lambda s: s.pop("_orig_mod.model.inner.H_init")}, "no weight 'H_init'"),
    ({"change": lambda s: s.update(extra=torch.zeros(1))}, "holds a weight 'extra'"),
    ({"change": lambda s: _rename(s, "L_level", "blocks")}, "holds no TRM or HRM"),
    ({"change": lambda s: s.update(step=3)}, "no plain dictionary of weights"),
    ({"change": lambda s: s.pop("_orig_mod.model.inner.embed_tokens.embedding_weight")}, "no token embedding"),
    ({"change": lambda s: s.update({"model.inner.H_init": torch.zeros(32)})}, "'H_init' twice"),
])
def test_a_file_that_does_not_fit_is_refused_in_a_sentence(released, case, message):
    with pytest.raises(InvalidFile, match=message):
        lt.load_model("trm", released(**case))


def test_the_checkpoint_of_another_model_says_which_it_is():
    with pytest.raises(InvalidFile, match=r"checkpoint of 'hrm', not of 'trm'. Load it with load_model\('hrm'"):
        lt.load_model("trm", DATA / "sudoku_hrm" / "step_1")
    with pytest.raises(InvalidFile, match="checkpoint of 'trm', not of 'hrm'"):
        lt.load_model("hrm", DATA / "maze_att" / "step_1")


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_code_in_a_pickle_is_never_run(released, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = released()
    torch.save({"weights": _Evil()}, path)
    with pytest.raises(InvalidFile, match=r"holds pickled code \(posix.mkdir\) and was not loaded"):
        lt.load_model("trm", path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01.", b"PK\x03\x04 not quite a zip"])
def test_a_damaged_file_is_refused(released, content):
    path = released()
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=r"damaged|pickled|no plain dictionary"):
        lt.load_model("trm", path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(released, make, tmp_path, share):
    path = released()
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(InvalidFile, match="damaged, truncated"):
        lt.load_model("trm", path)
    ours = checkpoints.save_model(make("trm"), tmp_path / "model.safetensors")
    ours.write_bytes(ours.read_bytes()[: int(ours.stat().st_size * share)])
    with pytest.raises(InvalidFile, match="damaged, truncated"):
        lt.load_model("trm", ours)


@pytest.mark.parametrize(("text", "message"), [
    (None, "no all_config.yaml beside it"), ("arch: [1, 2]", "no section 'arch'"),
    ("a: b: c", "not readable as plain YAML"),
    ("arch: !!python/object/apply:os.mkdir [ran]", "not readable as plain YAML"),
])
def test_a_config_that_is_missing_or_no_plain_yaml_is_refused(released, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    path = released()
    config = path.parent / "all_config.yaml"
    config.unlink() if text is None else config.write_text(text)
    with pytest.raises(InvalidFile, match=message):
        lt.load_model("trm", path)
    assert not (tmp_path / "ran").exists()


def test_sizes_that_contradict_the_weights_are_refused(released):
    path = DATA / "sudoku_mlp" / "step_1"
    assert lt.load_model("trm", path, seq_len=81, vocab_size=11, num_puzzle_identifiers=1).config.seq_len == 81
    for field, value in (("seq_len", 900), ("vocab_size", 6), ("num_puzzle_identifiers", 2)):
        with pytest.raises(InvalidFile, match=rf"was made with {field} = \d+, not {value}"):
            lt.load_model("trm", path, **{field: value})
    shorter = released(arch={"puzzle_emb_len": 8})  # the mixer's 97 positions would then be 8 and 89
    with pytest.raises(InvalidFile, match="was made with seq_len = 89, not 81"):
        lt.load_model("trm", shorter, seq_len=81)
    with pytest.raises(InvalidValue, match="whole number"):
        lt.load_model("trm", path, seq_len=-1)


def test_paths_and_names_that_lead_nowhere_are_refused(tmp_path):
    with pytest.raises(InvalidFile, match=r"no bundled model of kind 'trm' has that name\. Bundled models: "):
        lt.load_model("trm", "sudoku-nonexistent")
    with pytest.raises(InvalidValue, match="needs a path or the name of a bundled model"):
        lt.load_model("trm")
    with pytest.raises(UnknownName, match="Did you mean 'trm'"):
        lt.load_model("trn", "x")
    with pytest.raises(InvalidFile, match=r"folder without config\.json"):
        lt.load_model("trm", tmp_path)
    with pytest.raises(InvalidFile, match="Name the checkpoint file in it"):
        lt.load_model("trm", DATA / "sudoku_mlp")


@pytest.mark.parametrize(("kind", "config"), [
    ("trm", {"mlp_t": True, "state_dtype": "float32", "forward_dtype": "bfloat16"}),
    ("trm", {"pos_encodings": "learned"}),
    ("hrm", {"puzzle_emb_ndim": 32}), ("fprm", {}), ("looped", {"q_head": False}),
])
@pytest.mark.parametrize("where", ["folder", "file.safetensors", "hub"])
def test_our_own_format_comes_back_as_it_was(make, batch, run, tmp_path, kind, config, where):
    model = make(kind, **config)
    if where == "hub":
        model.save_pretrained(tmp_path / "hub")
        back = type(model).from_pretrained(tmp_path / "hub")
        assert (tmp_path / "hub" / "README.md").exists()
    else:
        path = checkpoints.save_model(model, tmp_path / where, card="# Mine\n")
        back = lt.load_model(kind, path)
        card = path.with_suffix(".md") if path.is_file() else path / "README.md"
        assert card.read_text() == "# Mine\n"
    assert back.config == model.config
    assert type(back.config).from_dict(json.loads(json.dumps(back.config.to_dict()))) == back.config
    one, two = (run(m, batch())[0] for m in (model, back))
    assert torch.equal(model.readout(one).logits, back.readout(two).logits)
    assert {n: v.dtype for n, v in back.state_dict().items()} == {n: v.dtype for n, v in model.state_dict().items()}
    assert all(p.requires_grad for p in back.parameters())


def test_hub_folders_and_ours_are_the_same(make, tmp_path):
    model = make("trm")
    model.save_pretrained(tmp_path / "hub")
    assert torch.equal(lt.load_model("trm", tmp_path / "hub").lm_head.weight, model.lm_head.weight)
    checkpoints.save_model(model, tmp_path / "ours")
    assert torch.equal(lt.models.TRM.from_pretrained(tmp_path / "ours").lm_head.weight, model.lm_head.weight)
    with pytest.raises(InvalidFile, match="kind 'trm', not 'hrm'"):
        lt.models.HRM.from_pretrained(tmp_path / "ours")


def test_our_files_of_the_wrong_kind_or_make_are_refused(make, tmp_path):
    path = checkpoints.save_model(make("trm"), tmp_path / "m.safetensors")
    with pytest.raises(InvalidFile, match="kind 'trm', not 'looped'"):
        lt.load_model("looped", path)
    with pytest.raises(InvalidFile, match="seq_len = 16, not 81"):
        lt.load_model("trm", path, seq_len=81)
    folder = checkpoints.save_model(make("trm"), tmp_path / "folder")
    for text, message in (("{", "no JSON"), ("[]", "its config must be"),
                          ('{"kind": "trm", "config": {"a": 1}}', "Unknown field")):
        (folder / "config.json").write_text(text)
        with pytest.raises(InvalidFile, match=message):
            lt.load_model("trm", folder)
    save_file({"a": torch.zeros(2)}, tmp_path / "plain.safetensors")
    with pytest.raises(InvalidFile, match="holds no TRM or HRM"):
        lt.load_model("trm", tmp_path / "plain.safetensors")


def test_bundled_models_load_by_name(make, tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "assets", lambda: tmp_path)
    checkpoints.save_model(make("trm"), tmp_path / "trm-sudoku-4x4.safetensors")
    assert bundled.bundled_models() == ["trm:sudoku-4x4"]
    assert lt.load_model("trm", "sudoku-4x4").config == lt.load_model("trm:sudoku-4x4").config == make("trm").config
    with pytest.raises(InvalidFile, match="Bundled models: trm:sudoku-4x4"):
        lt.load_model("trm", "maze")


def test_a_folder_of_the_same_name_does_not_hide_a_bundled_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sudoku").mkdir()  # `looptaps data build sudoku sudoku` makes one
    assert lt.load_model("trm:sudoku").config.seq_len == 81
    for path in ("./sudoku", Path("sudoku")):
        with pytest.raises(InvalidFile, match=r"folder without config\.json"):
            lt.load_model("trm", path)


@pytest.mark.parametrize(("call", "shown"), [
    ("list(lt.models.MODELS)", "['fprm', 'hrm', 'looped', 'trm']"),
    ("lt.models.bundled_models()", "['fprm:sudoku', 'looped:sudoku', 'trm:maze', 'trm:sudoku']"),
])
def test_listing_models_loads_no_torch(call, shown):
    code = f"import sys, looptaps as lt; print({call}); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == shown
