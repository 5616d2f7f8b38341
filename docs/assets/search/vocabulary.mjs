// Words of readers' queries: what they mean, and which of them say little.

/** @type {Record<string, string>} What readers write for words that pages spell out, which they have too. */
export const MEANS = {
  amp: "mixed precision", bfloat16: "bf16", cp: "context parallelism", dp: "data parallelism",
  ep: "expert parallelism", gas: "gradient accumulation", ga: "gradient accumulation", gc: "checkpointing",
  hpo: "hyperparameter search", lr: "learning rate", mfu: "utilization", moe: "mixture experts",
  ngl: "layers gpu llama", multi: "many several", multiple: "many several", oom: "outofmemoryerror memory",
  pp: "pipeline parallelism", rl: "reinforcement learning grpo", sdpa: "scaled dot product attention", several: "many",
  forever: "never stops", forgets: "forgot forgetting", forgot: "forgetting", freezes: "hangs", garbage: "wrong",
  gibberish: "garbage wrong", idle: "waits", imatrix: "importance matrix", repeats: "never stops",
  shuts: "powers off reboots", tp: "tensor parallelism", tps: "tokens second", ttft: "first token"
}

/** @type {Record<string, string>} And what pages have by chance, if at all: the other words take its place. */
export const PLAIN = {
  batchsize: "batch size", bs: "batch size", eta: "days train", computer: "machine", computers: "machines",
  ckpt: "checkpoint", fa2: "flashattention", fa3: "flashattention", finetune: "fine tune", finetuning: "fine tuning",
  jpeg: "images", jpg: "images", mac: "apple", macbook: "apple", overheating: "heat throttling",
  overheats: "heat throttling", seqlen: "sequence length", tei: "text embeddings inference", util: "utilization",
  vlm: "vision language", vram: "gpu memory"
}

const TUNING = /^(fine|tun(e|ed|es|ing))$/ // most pages are about it
// Few pages have these, and a rare word is not always a telling one.
const FILLER = new Set(`again already always any anyone anything anymore bad before cheap completely correctly
  different easy enough even every everything few first good great guide help hour hours idea instead keep keeps know
  knows knew little lot many minute minutes more nothing now only one possible proper properly quick quickly really
  right simple some somehow someone something sometimes still suddenly sure thing time try trying want way went whole
  work works working wrong`.split(/\s+/))

/** @param {string} word */
export const saysLittle = word => TUNING.test(word) || FILLER.has(word)
