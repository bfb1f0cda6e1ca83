"""Tiny random decoders for the language-model tests: seconds on one core, no network."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
RULES = ("standard", "taps-gd@blocks", "taps-sign@blocks", "taps-momentum@blocks", "taps-rmsprop@blocks",
         "taps-adam@blocks", "taps-bb@blocks")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def build(kind, **changes):
    import transformers as tf

    sizes = {**SIZES, **changes}
    if kind == "llama":
        config = tf.LlamaConfig(**sizes)
    elif kind == "qwen3":
        config = tf.Qwen3Config(**{"head_dim": 8, **sizes})
    elif kind == "mistral":
        config = tf.MistralConfig(**{"head_dim": 8, "sliding_window": None, **sizes})
    elif kind == "gemma3":  # layers 0..4 slide over 6 tokens, the last sees all
        types = ["sliding_attention"] * 5 + ["full_attention"]
        config = tf.Gemma3TextConfig(**{"head_dim": 8, "sliding_window": 6, "layer_types": types, **sizes})
    elif kind == "gemma3_multimodal":
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "image_size": 28, "patch_size": 14}
        config = tf.Gemma3Config(text_config=build("gemma3").config, vision_config=vision, mm_tokens_per_image=1,
                                 image_token_id=0, pad_token_id=0)
    elif kind == "llama4":  # layers 0..2 see chunks of 6 tokens, 3 sees all, and so on
        config = tf.Llama4TextConfig(**{"head_dim": 8, "intermediate_size_mlp": 64, "num_local_experts": 2,
                                        "num_experts_per_tok": 1, "attention_chunk_size": 6, **sizes})
    elif kind == "gemma3n":
        config = tf.Gemma3nTextConfig(**{"head_dim": 8, "vocab_size_per_layer_input": 97, "laurel_rank": 4,
                                         "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
                                         "layer_types": ["full_attention"] * 6,
                                         "activation_sparsity_pattern": [0.0] * 6, **sizes})
    else:
        raise ValueError(kind)
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = None
    return model.eval()


@pytest.fixture(scope="session")
def make():
    """`make("llama")`: a fresh tiny model."""
    return build


@pytest.fixture
def ids():
    """Two prompts of ten tokens."""
    return torch.randint(1, 97, (2, 10), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def generate():
    """Greedy tokens and the logits behind them."""

    @torch.no_grad()
    def run(model, ids, new=8, **options):
        out = model.generate(ids, max_new_tokens=new, do_sample=False, output_logits=True, pad_token_id=0,
                             return_dict_in_generate=True, **options)
        return out.sequences, torch.stack(out.logits, 1)

    return run
