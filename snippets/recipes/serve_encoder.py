"""Serves an exported encoder: POST {"texts": [...]} to / gives {"embeddings": [...]}. What waits meanwhile is one batch.

    python serve_encoder.py --port 8080 --threads 4
"""
import argparse
import json
import queue
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openvino
from transformers import AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default="encoder")
parser.add_argument("--port", type=int, default=8080)
parser.add_argument("--threads", type=int, default=0, help="cores of this server; 0 for all")
parser.add_argument("--batch", type=int, default=32, help="texts that are computed together at most")
asked = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(asked.folder)
options = {"INFERENCE_NUM_THREADS": asked.threads} if asked.threads else {}
model = openvino.Core().compile_model(f"{asked.folder}/openvino.xml", "CPU", options)
waiting = queue.Queue()  # (text, Future of its embedding)


# --8<-- [start:batch]
def work():
    """Takes all texts that wait, up to a batch, computes them together, and begins again."""
    while True:
        batch = [waiting.get()]
        while len(batch) < asked.batch and not waiting.empty():
            batch.append(waiting.get())
        try:
            texts = [text for text, _ in batch]
            tokens = tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="np")
            vectors = model([tokens["input_ids"], tokens["attention_mask"]])[0]
            for (_, answer), vector in zip(batch, vectors):
                answer.set_result(vector.tolist())
        except Exception as error:  # the callers get it, and the server goes on
            for _, answer in batch:
                answer.set_exception(error)
# --8<-- [end:batch]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open

    def do_POST(self):
        try:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            answers = [Future() for _ in texts]
            for pair in zip(texts, answers):
                waiting.put(pair)
            self.answer(200, {"embeddings": [answer.result(timeout=60) for answer in answers]})
        except (KeyError, TypeError, ValueError):
            self.answer(400, {"error": 'send {"texts": ["...", "..."]}'})
        except Exception as error:
            self.answer(500, {"error": str(error)})

    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256  # connections that may wait; Python's 5 reset those of the sixth user


if __name__ == "__main__":
    threading.Thread(target=work, daemon=True).start()
    server = Server(("127.0.0.1", asked.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
