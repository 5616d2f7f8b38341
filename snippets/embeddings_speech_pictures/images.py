"""What a picture costs a vision model: its tokens and their KV cache, at three limits of its pixels."""
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, Qwen2_5_VLConfig, Qwen2VLImageProcessorPil, set_seed

set_seed(0)
IMAGE, START, END = 490, 492, 493  # with the Hub: ids = processor.apply_chat_template(messages, tokenize=True, ...)
config = Qwen2_5_VLConfig(
    text_config=dict(vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=0,
                     rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}),
    vision_config=dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64,
                       fullatt_block_indexes=[1]),
    image_token_id=IMAGE, vision_start_token_id=START, vision_end_token_id=END)
device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
# or from_pretrained("Qwen/Qwen2.5-VL-7B-Instruct", dtype=dtype, attn_implementation={...: ...}), as on the page
model = AutoModelForImageTextToText.from_config(config, dtype=dtype).to(device).eval()
picture = Image.linear_gradient("L").resize((1024, 768)).convert("RGB")

# --8<-- [start:limit]
processor = Qwen2VLImageProcessorPil()  # or AutoProcessor.from_pretrained(name).image_processor
SIDE = 14 * 2  # a token stands for 28 x 28 pixels: patches of 14, merged two by two
for most in (16384, 512, 128):  # tokens for one picture; the first is the limit of the published checkpoint
    size = {"shortest_edge": 4 * SIDE**2, "longest_edge": most * SIDE**2}  # despite their names: pixels in all
    inputs = processor(images=[picture], size=size, return_tensors="pt").to(device)
    tokens = int(inputs["image_grid_thw"].prod()) // 4
    ids = torch.tensor([[5, START, *[IMAGE] * tokens, END, 7, 8]], device=device)
    answer = model.generate(ids, **inputs, mm_token_type_ids=(ids == IMAGE).int(), max_new_tokens=4, do_sample=False,
                            return_dict_in_generate=True)
    cache = sum(layer.keys.nbytes + layer.values.nbytes for layer in answer.past_key_values.layers)
    print(f"at most {most}: {tokens} tokens from {len(inputs['pixel_values'])} patches, cache {cache / 2**10:.0f} KiB")
# --8<-- [end:limit]
