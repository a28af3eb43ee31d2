"""Parquet files for parquet_test.cpp.  usage: make_parquet.py FOLDER"""
import sys
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
n = 5000
texts = [f'text {i} "quoted" \\ é漢\n' for i in range(n)]
pq.write_table(pa.table({"id": list(range(n)), "text": texts, "score": [i / 7 for i in range(n)]}),
               folder + "/text.parquet", row_group_size=1000)
pq.write_table(pa.table({"text": pa.array(texts, pa.large_string())}).append_column("other", pa.array(texts)),
               folder + "/large.parquet", row_group_size=700, compression="zstd")
pq.write_table(pa.table({"text": pa.array(["a", "b", "a", None, "c", ""] * 10).dictionary_encode()}),
               folder + "/dictionary.parquet")
talk = [[{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}] for i in range(100)]
talk[7] = [{"role": "user", "content": "nobody answers"}]
talk[8] = None
pq.write_table(pa.table({"messages": talk, "source": ["x"] * 100}), folder + "/chat.parquet")
pq.write_table(pa.table({"question": ["Q?"] * 3, "choices": [["x", "y"]] * 3, "answer": [0, 1, 5]}),
               folder + "/choice.parquet")
pq.write_table(pa.table({"unrelated": [1, 2]}), folder + "/columns.parquet")
pq.write_table(pa.table({"text": pa.array([], pa.string())}), folder + "/empty.parquet")
pq.write_table(pa.table({"instruction": ["Add.", "Hi"], "input": ["1 2", None], "output": ["3", "yo"], "text": ["x", "y"]}),
               folder + "/alpaca.parquet")
pq.write_table(pa.table({"prompt": ["Hi"], "completion": ["yo"], "id": [1]}), folder + "/prompt.parquet")
