"""lm-eval: local-completions and local-chat-completions on two small tasks of our own."""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"

CHOICE = """task: story_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_target: label
doc_to_choice: choices
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
WRITE = """task: story_write
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{choices[label]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
STORIES = [
    ("Once upon", [" a time", " zxq wvk"], 0),
    ("There was a little", [" qqqq vvv", " girl"], 1),
    ("The dog was very", [" happy", " %%$ ##"], 0),
    ("She wanted to", [" \u0416\u0429 jj", " play"], 1),
]


def main(url: str, key: str) -> None:
    os.environ["OPENAI_API_KEY"] = key
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["HF_HOME"] = str(folder / "hf")
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager

        data = folder / "stories.jsonl"
        rows = [{"text": text, "choices": ends, "label": at} for text, ends, at in STORIES]
        data.write_text("\n".join(map(json.dumps, rows)))
        for name, task in (("choice", CHOICE), ("write", WRITE)):
            (folder / f"{name}.yaml").write_text(task.format(data=data))
        manager = TaskManager(include_path=scratch, include_defaults=False)
        common = "model=demo,num_concurrent=2,max_retries=1"
        scored = simple_evaluate(
            model="local-completions",
            model_args=f"{common},base_url={url}/v1/completions,tokenizer_backend=remote,"
            f"tokenized_requests=True,batch_size=2,auth_token={key}",
            tasks=["story_choice", "story_write"],
            task_manager=manager,
            bootstrap_iters=0,
        )
        accuracy = scored["results"]["story_choice"]["acc,none"]
        assert accuracy >= 0.75, scored["results"]
        written = simple_evaluate(
            model="local-chat-completions",
            model_args=f"{common},base_url={url}/v1/chat/completions",
            tasks=["story_write"],
            task_manager=manager,
            apply_chat_template=True,
            bootstrap_iters=0,
        )
        assert "exact_match,none" in written["results"]["story_write"]


if __name__ == "__main__":
    main(*sys.argv[1:3])
