// What the planner's modules hand to each other, and the JSON that they read: answers of dryrun, and
// planner/choices.json.
import type { Question } from "./question.mjs"

/** The values of the form by field: a checkbox has true or false. */
export type Values = Record<string, string | boolean>

/** A field of the form. groups: the parts of the form that it stands in and that belong to some questions only. */
export interface Field {
  name: string
  checkbox: boolean
  start: string | boolean
  groups: string[]
}

export interface Gpu {
  name: string
  label: string
  family: string
  gib: number
  trains: boolean
}

export interface Model {
  name: string
  parameters: number
  positions: number
  hub: string
}

export interface Offered {
  models: Model[]
  /** Of these the page knows what text needs in memory, and no training step. */
  memory: Model[]
  families: string[]
  gpus: Gpu[]
  spellings: { models: Record<string, string>; gpus: Record<string, string> }
  weights: string[]
  networks: string[]
}

/** error: in the command's words. refusal: as dryrun.Refusal has it; "page" is the code of the page's own. */
export interface Refusal {
  error: string
  refusal?: { code: string, field: string, given: unknown, problem: string, fix: string, nearest: unknown[] }
}

export type Fit = "fits" | "maybe" | "no"

/** As dryrun.Verdict has it. margin_gib: what is left of the GPU; below 0, what is missing. verdict: the same in words. */
export interface FullFit {
  fits: boolean
  fit: Fit
  verdict: string
  expected_gib: number
  high_gib: number
  gpu_gib: number
  margin_gib: number
  why: { code: string, host_gb?: number, host_memory_gb?: number | null }
}

export interface Change {
  option: string
  change: string
  fits: boolean
  fit: Fit
  tokens_per_second: number
  expected_gib: number
}

/** A change of a generation that does not fit. */
export interface Other {
  option: string
  expected_gib: number
  tokens_per_second: number | null
}

interface Common extends FullFit {
  gpu: string
  gpus: number
  model: string
  parameters: number
  trained?: number
  mixture?: boolean
  fp16?: boolean
  judged?: boolean
}

export interface Training extends Common {
  memory_gib: Record<string, number>
  seconds: number
  low: number
  high: number
  bound: string
  klass: string
  ran_as?: string | null // what --ran calls a step like this one
  tokens_per_second: number
  mfu: number
  link_gb_per_s?: number
  network_gb_per_s?: number
  tokens?: number
  hours?: number
  hours_low?: number
  hours_high?: number
  cost?: number
  largest_batch?: number
  changes?: Change[]
}

export interface Speed {
  tokens_per_second: number
  low: number
  high: number
  seconds_to_first_token: number | null
  first_low?: number
  first_high?: number
}

export interface Serving extends Common {
  weights: string
  stored_in?: string // the format that its publisher stores it in, where that is not 16 bits
  weights_gib: number
  cache_gib: number
  server: string
  speed?: Speed | null
  unpredicted?: string
  users?: number
  longest?: number
  cost_of_million?: number
  hours_of_million?: number
  hours_of_million_low?: number
  hours_of_million_high?: number
  changes: Other[]
}

/** A strategy for several GPUs. */
export interface Option extends FullFit {
  strategy: string
  offload?: boolean
  tokens_per_second: number
  seconds: number
  low?: number | null
  high?: number | null
}

/** An answer in short: a row of the table, or one of the site's files. */
export interface Judged extends FullFit {
  tokens_per_second: number | null
  low: number | null
  high: number | null
  unpredicted?: string
  hours_of_million?: number | null
}

/** A row of the table of GPUs or models. */
export interface Row extends Judged {
  name: string
}

/** What the question's answers are so far. known: the model's own name in the lists, where it has one. */
export interface Shown {
  question: Question
  train?: Training | Refusal
  infer?: Serving | Refusal
  plan?: Option[] | Refusal
  known: string
  refused: string[]
  more: boolean
}

/** What the worker says of a model: its name in the lists, and its sizes in words. */
export interface Named {
  name: string
  words: string
}

export interface InWords {
  error?: string
  model?: string
  left_out?: string
  stored_in?: string
}
