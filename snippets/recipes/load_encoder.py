"""Asks a server as many users would, and prints texts per second and how long an answer takes.

    python load_encoder.py http://127.0.0.1:8080/ --users 8
"""
import argparse
import json
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser()
parser.add_argument("address")
parser.add_argument("--users", type=int, default=8)
parser.add_argument("--requests", type=int, default=200)
asked = parser.parse_args()


def ask(number):
    text = "A text of some words, " * (1 + number % 8)
    request = urllib.request.Request(asked.address, json.dumps({"texts": [text]}).encode())
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert len(json.load(answer)["embeddings"]) == 1
    return time.perf_counter() - begun


ask(0)
begun = time.perf_counter()
with ThreadPoolExecutor(asked.users) as users:
    times = sorted(users.map(ask, range(asked.requests)))
rate = asked.requests / (time.perf_counter() - begun)
print(f"{asked.users} users: {rate:.0f} texts/s, half within {1000 * statistics.median(times):.0f} ms, "
      f"95 % within {1000 * times[int(0.95 * len(times))]:.0f} ms")
