import assert from "node:assert/strict"
import { test } from "node:test"
import { errors, sameMessage } from "../../docs/assets/paste/errors.mjs"

const ERROR = "RuntimeError: CUDA error: device-side assert triggered"
const LOG = `Loading checkpoint shards: 100%|██████████| 4/4 [00:02<00:00]
2026-11-26 10:00:01 INFO trainer.py:512 step 120
dataloader.py:627: UserWarning: This DataLoader will create 8 worker processes in total.
{'loss': 2.31, 'grad_norm': 1.2}
Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
${ERROR}
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
2026-11-26 10:00:02 INFO trainer.py:512 the end
`

test("a log leads to its error, without frames, bars, losses, warnings and what only says that something failed", () => {
  assert.deepEqual(errors(LOG), [ERROR])
})

test("an error has the lines that belong to it", () => {
  assert.deepEqual(errors(`a\nb\nc\n${ERROR}\nCompile with TORCH_USE_CUDA_DSA\nTraceback (most recent call last):\n`), [`${ERROR} Compile with TORCH_USE_CUDA_DSA`])
})

test("one message alone is asked for as it is", () => {
  assert.deepEqual(errors(ERROR), [ERROR])
  assert.deepEqual(errors("nothing of an error"), ["nothing of an error"])
  assert.deepEqual(errors("one\n\ntwo\n"), ["one two"])
})

test("ranks that say the same are one error, and several stand in their order, three at most", () => {
  const ranks = [0, 1, 2].map(rank => `[rank${rank}]: ${ERROR} ${rank}`).join("\n\n")
  assert.equal(errors(`first line\n${ranks}`).length, 1)
  const several = ["ValueError: a", "KeyError: b", "TypeError: c", "OSError: d"].join("\n")
  assert.deepEqual(errors(`first line\n${several}`), ["ValueError: a", "KeyError: b", "TypeError: c"])
})

test("what C++ and the kernel say is found where Python raised nothing", () => {
  const log = "step 1\nstep 2\nstep 3\nterminate called, SIGKILL received\nOut of memory: Killed process 123\n"
  assert.match(errors(log)[0], /SIGKILL/)
})

test("a warning is taken where there is nothing else", () => {
  const lines = ["a.py:1: UserWarning: first", "b.py:2: FutureWarning: second", "c.py:1: UserWarning: third", "d.py:9: UserWarning: x"]
  assert.equal(errors(lines.join("\n"))[0], lines[0])
})

test("of a long log its end is read, and of a long line its beginning", () => {
  const [found] = errors(`${"x\n".repeat(400_000)}${ERROR}${"y".repeat(5000)}\nend of it\nmore`)
  assert.ok(found.startsWith(ERROR) && found.length < 1100)
})

test("an empty log has no error to look up", () => {
  assert.deepEqual(errors("\n \n"), [""])
})

test("the message of a section is that which is pasted, whatever its numbers and what stands before it", () => {
  const messages = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB.", "ValueError: expected 3 values"]
  assert.equal(sameMessage(messages, "[rank0]: ValueError: expected 12 values"), 1)
  assert.equal(sameMessage(messages, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."), 0)
  assert.equal(sameMessage(messages, "KeyError: 3"), -1)
})
