"""What Hugging Face tokenizers makes of strings without line ends, and of all of them with line ends between.

usage: hugging_face_ids.py tokenizer.json COUNT FOLDER    writes FOLDER/strings, FOLDER/lines.ids and FOLDER/whole.ids
"""
import pathlib
import sys

from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
from tokenizer_strings import generate  # noqa: E402

tokenizer = Tokenizer.from_file(sys.argv[1])
folder = pathlib.Path(sys.argv[3])
strings = [text.replace("\n", "") for text in generate(int(sys.argv[2]))]
strings = [text for text in strings if text]
whole = "\n".join(strings)


def write(name, encodings):
    lines = ["[" + ",".join(map(str, e.ids)) + "]\n" for e in encodings]
    (folder / name).write_text("".join(lines))


(folder / "strings").write_bytes(whole.encode())
write("lines.ids", tokenizer.encode_batch(strings, add_special_tokens=False))
write("whole.ids", [tokenizer.encode(whole, add_special_tokens=False)])
