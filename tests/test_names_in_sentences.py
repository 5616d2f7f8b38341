"""Code in the sentences of the pages: names, arguments, options and variables that the installed versions know.

Code blocks are files of snippets/, which test_snippets.py checks. Here is what stands in backticks in the text. A name of what is
not installed here stands in data/names_elsewhere.yml, by the program it is of; so does one that a page calls gone.
"""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
import yaml
from programs import ROOT

# It imports all that a page names, for a minute: a change of a page starts it (chosen.py), and the night.
pytestmark = pytest.mark.nightly
ELSEWHERE = ROOT / "tests" / "data" / "names_elsewhere.yml"
BLOCK = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*\s*$", re.M | re.S)
CODE = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")
DOTTED = re.compile(r"(?<![\w./\-\"'<@])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
FILE = re.compile(r"\.(py|sh|json|md|txt|yaml|yml|toml|safetensors|bin|log|pt)$")
PACKAGES = {
    "torch", "transformers", "accelerate", "peft", "trl", "datasets", "deepspeed", "bitsandbytes", "torchao", "optuna", "numpy",
    "safetensors", "tokenizers", "huggingface_hub", "schedulefree", "gguf", "openvino", "onnxruntime", "psutil", "dryrun", "gc", "os",
    "functools",
}  # fmt: skip
# Where a page's `Name(...)` and `.method(...)` come from.
HOMES = [
    "transformers", "transformers.distributed", "trl", "peft", "accelerate", "accelerate.utils", "datasets", "optuna",
    "optuna.storages", "optuna.storages.journal", "torch", "torch.nn", "torch.nn.functional", "torch.nn.parallel", "torch.nn.utils",
    "torch.optim", "torch.distributed", "torch.distributed.fsdp", "torch.distributed.checkpoint", "torch.distributed.device_mesh",
    "torch.distributed.tensor.parallel", "torch.utils.data", "torch.utils.checkpoint", "torchao.quantization",
    "transformers:PreTrainedModel", "transformers:GenerationMixin", "transformers:AutoModel", "transformers:Trainer",
    "transformers:PreTrainedTokenizerBase", "peft:PeftModel", "torch.nn:Module", "torch:Tensor", "torch.utils.data:DataLoader",
    "datasets:Dataset", "datasets:IterableDataset", "optuna:Trial", "torch.distributed.optim:ZeroRedundancyOptimizer",
]  # fmt: skip
# Keywords that no signature names, since a function passes them on, and who takes them.
PASSED_ON = {
    "apply_chat_template": {"enable_thinking"},  # the template itself
    "batch": {"drop_remainder"},  # of TensorFlow
    "compile": {"jit_compile", "optimizer"},  # of Keras
    "encode": {"pool"},  # of sentence-transformers
    "predict": {"pool"},  # the same
    "from_pretrained": {
        "dtype",
        "use_kernels",
        "tp_plan",
        "from_tf",
        "from_flax",
        "torch_dtype",
    },  # the last three: named as gone
    "generate": {"num_return_sequences"},  # GenerationConfig
    "load_dataset": {"columns", "batch_size", "fragment_scan_options"},  # the builder of Parquet files
    "Trainer": {"use_cpu", "tokenizer"},  # a page tells what is an error
}


def sentences(text):
    """[(line, code)] of what stands in backticks outside code blocks."""
    text = BLOCK.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    return [(text.count("\n", 0, found.start()) + 1, found[2].strip()) for found in CODE.finditer(text)]


@functools.cache
def pages():
    """[(file:line, code)] of all pages."""
    files = sorted((ROOT / "docs").rglob("*.md"))
    return [
        (f"{path.relative_to(ROOT).as_posix()}:{line}", code)
        for path in files
        for line, code in sentences(path.read_text())
    ]


@functools.cache
def elsewhere():
    """{name: the program it is of}"""
    return {name: program for program, names in yaml.safe_load(ELSEWHERE.read_text()).items() for name in names}


def fail_with(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


# Dotted names


MISSING = object()


def resolved(dotted):
    """What a dotted name is, or MISSING."""
    parts = dotted.split(".")
    for number in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:number]))
        except ImportError:
            continue
        for part in parts[number:]:
            found = getattr(found, part, MISSING)
        return found
    return MISSING


def wrong_dotted(code):
    for dotted in DOTTED.findall(code):
        if dotted.split(".")[0] in PACKAGES and not FILE.search(dotted) and resolved(dotted) is MISSING:
            yield dotted


def test_every_dotted_name_in_a_sentence_is_one_of_the_installed_versions():
    fail_with([
        f"{place}: {name} is in no installed package"
        for place, code in pages() for name in wrong_dotted(code) if name not in elsewhere()
    ])  # fmt: skip


# Keywords of calls


@functools.cache
def called(name):
    """All that a page may mean by this name of a function, class or method."""
    if name.split(".")[0] in PACKAGES:
        return [found for found in [resolved(name)] if callable(found)]
    found = []
    for home in HOMES:
        module, _, owner = home.partition(":")
        whole = importlib.import_module(module)
        found.append(getattr(getattr(whole, owner) if owner else whole, name.rpartition(".")[2], None))
    return [each for each in found if callable(each)]


def accepts(function, keyword):
    try:
        return keyword in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C++: no signature
        return True


def wrong_keywords(code):
    """(function, keyword) of calls whose keyword none of the functions of that name takes."""
    try:
        tree = ast.parse(code.replace("...", "_"), mode="eval")
    except (SyntaxError, ValueError):
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            last, known = name.rpartition(".")[2], called(name)
            for keyword in (each.arg for each in call.keywords if each.arg):
                if known and not any(accepts(each, keyword) for each in known):
                    yield last, keyword


def test_every_keyword_of_a_call_in_a_sentence_is_one_that_the_function_takes_or_known_to_be_passed_on():
    found = [(place, *wrong) for place, code in pages() for wrong in wrong_keywords(code)]
    listed = {(function, keyword) for function, keywords in PASSED_ON.items() for keyword in keywords}
    new = [f"{place}: {function}() takes no {keyword}" for place, function, keyword in found if (function, keyword) not in listed]
    stale = [f"tests/test_names_in_sentences.py: PASSED_ON lists {keyword} of {function}(), which no page needs. Fix: take it out"
             for function, keyword in sorted(listed - {(function, keyword) for _, function, keyword in found})]  # fmt: skip
    fail_with(new + stale)


# Words: arguments, options, variables, names of classes and functions


def words(code):
    """What looks like a name of a program or library: `x=`, `--x`, `A_B`, `snake_case`, `CamelCase`."""
    yield from re.findall(r"(?<![\w.-])([A-Za-z_]\w+)=(?!=)", code)
    yield from (f"--{found}" for found in re.findall(r"(?<![\w-])--([a-z][\w-]+)", code))
    yield from re.findall(r"(?<![\w$])([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", code)
    if re.fullmatch(r"([a-z]\w*_\w+|[A-Z]\w*[a-z]\w*[A-Z]\w*)(\(\))?", code):
        yield code.removesuffix("()")


def spellings(word):
    plain = word.removeprefix("--")
    return {plain, plain.replace("-", "_")}


TEXTS = ("py", "pyi", "json", "sh", "yaml", "txt", "sbatch")


def known(asked):
    """Those of these words that occur in an installed package, in Python itself, or in this repository's own code. What is small and
    knows most comes first: the libraries of a gigabyte are read for the words that are left."""
    names = ("snippets", "notebooks", "evidence", "dryrun", "Makefile", "conftest.py", "tests/programs.py")
    own = [ROOT / name for name in names]
    purelib, stdlib = (Path(sysconfig.get_paths()[name]) for name in ("purelib", "stdlib"))
    most = [purelib / name for name in ("transformers", "trl", "accelerate", "peft", "huggingface_hub", "datasets")]
    left = set(asked) - {path.name for path in Path(sys.executable).parent.iterdir()}
    for kinds, places in ((TEXTS, own), (TEXTS, most), (TEXTS, [purelib, stdlib]), (("so", "so.*"), [purelib, stdlib])):
        left -= occurring(left, kinds, places)
    return set(asked) - left


def occurring(words, kinds, places):
    """Those of these words that occur in files of these kinds."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as list_of_words:
        list_of_words.write("\n".join(sorted(words)))
        list_of_words.flush()
        included = [f"--include=*.{kind}" for kind in kinds]
        command = ["grep", "-rhowaF", "-f", list_of_words.name, *included, "--include=Makefile", *places]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", env={"LC_ALL": "C"})
    assert said.returncode in (0, 1, 2)  # 2: a file that may not be read
    return set(said.stdout.split())


def unknown(places):
    """{word: its places} of those that nothing here knows."""
    asked = {}
    for place, code in places:
        for word in words(code):
            asked.setdefault(word, {})[place] = None
    found = known({spelling for word in asked for spelling in spellings(word)})
    return {word: [*where] for word, where in asked.items() if not spellings(word) & found}


@pytest.fixture(scope="module")
def unknown_on_pages():
    return unknown(pages())


def test_every_argument_option_and_variable_in_a_sentence_is_known_to_what_is_installed_or_listed_elsewhere(
    unknown_on_pages,
):
    fix = "Fix: correct it, or list it in tests/data/names_elsewhere.yml under the program it is of"
    fail_with([
        f"{where[0]}: nothing installed knows {word}. {fix}"
        for word, where in unknown_on_pages.items() if word not in elsewhere()
    ])  # fmt: skip


def test_no_name_is_listed_that_no_page_has_or_that_is_installed(unknown_on_pages):
    dotted = {name for _, code in pages() for name in wrong_dotted(code)}
    stale = elsewhere().keys() - unknown_on_pages.keys() - dotted
    fail_with(
        [
            f"tests/data/names_elsewhere.yml: {name} is on no page, or installed. Fix: take it out"
            for name in sorted(stale)
        ]
    )


# What the checks find


def test_a_misspelt_name_keyword_option_and_variable_in_a_sentence_are_found_with_their_lines():
    text = (
        "Set `torch.nn.Lineal` or `torch.cuda.max_memory_allocated()`.\n"
        "```python\nnothing.here(is_read=1)\n```\n"
        "`TrainingArguments(max_step=4)`, `DataLoader(pin_memory=True)`\n"
        "`--nproc-per-nod 2`, `--nproc-per-node 2`, `TORCH_COMPILE_DEBUGG=1`, `max_grad_nrom=1`, `max_grad_norm=1`\n"
    )
    found = sentences(text)
    assert [(line, name) for line, code in found for name in wrong_dotted(code)] == [(1, "torch.nn.Lineal")]
    assert [(line, *wrong) for line, code in found for wrong in wrong_keywords(code)] == [
        (5, "TrainingArguments", "max_step")
    ]
    assert unknown(found) == {"--nproc-per-nod": [6], "TORCH_COMPILE_DEBUGG": [6], "max_grad_nrom": [6]}
