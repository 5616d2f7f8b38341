python tiny.py
for name in sft dpo grpo; do
  for line in {1..16}; do cat $name.json; done > $name.jsonl
done
python sft.py --model tiny --data sft.jsonl --steps 2
python dpo.py --model tiny --data dpo.jsonl --steps 2
python grpo.py --model tiny --data grpo.jsonl --tokens 8 --steps 20 --learning-rate 1e-2
