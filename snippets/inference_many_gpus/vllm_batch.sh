# One engine on each of four GPUs, each with every fourth line of the file. A line is a request in OpenAI's batch format:
# {"custom_id": "0", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "Qwen/Qwen3-8B", "messages": [...]}}
split --number=r/4 --numeric-suffixes --additional-suffix=.jsonl requests.jsonl part
for gpu in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$gpu vllm run-batch -i part0$gpu.jsonl -o answers0$gpu.jsonl --model Qwen/Qwen3-8B &
done
wait
cat answers0?.jsonl > answers.jsonl # one part behind the other, so custom_id names the request
