"""Writes a tiny model file for llama.cpp: two layers of random weights and a byte
vocabulary. It speaks nonsense, but a real server tokenizes, samples, streams and
stops with it, which is what a gateway has to live with.

Usage: python make_tiny_model.py OUTPUT.gguf   (needs the packages gguf and numpy)
"""

import sys

import gguf
import numpy as np

EMBEDDING = 64
FEED_FORWARD = 128
HEADS = 4
LAYERS = 2
CONTEXT = 4096
WORDS = [
    "▁the", "▁a", "▁of", "▁and", "▁to", "▁in", "▁is", "▁you", "▁that", "▁it",
    "▁gateway", "▁model", "▁stream", "▁token", "▁hello", "▁world", ".", ",", "?",
]


def vocabulary():
    tokens = ["<unk>", "<s>", "</s>"]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [gguf.TokenType.BYTE] * 256
    tokens += ["▁"] + [chr(c) for c in range(ord("a"), ord("z") + 1)] + WORDS
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    scores = [0.0] * 3 + [-100.0] * 256 + [-float(i) for i in range(len(tokens) - 259)]
    return tokens, types, scores


def main(path):
    random = np.random.default_rng(7)
    tokens, types, scores = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores(scores)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def tensor(name, *shape):
        values = random.normal(0, 0.4, shape).astype(np.float32)
        writer.add_tensor(name, values)

    def ones(name, size):
        writer.add_tensor(name, np.ones(size, dtype=np.float32))

    tensor("token_embd.weight", len(tokens), EMBEDDING)
    ones("output_norm.weight", EMBEDDING)
    tensor("output.weight", len(tokens), EMBEDDING)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight", EMBEDDING)
        ones(f"{block}.ffn_norm.weight", EMBEDDING)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{block}.{part}.weight", EMBEDDING, EMBEDDING)
        tensor(f"{block}.ffn_gate.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}.ffn_up.weight", FEED_FORWARD, EMBEDDING)
        tensor(f"{block}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
