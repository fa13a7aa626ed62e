"""Every format of every model, written twice, read back, and held against the JSON. By hand: python tests/viewers/all_formats.py MEMCREST MODEL..

Prints one line for what is wrong, and a table of how many documents of each format were right."""
import collections
import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

MEMCREST = sys.argv[1]
FORMATS = re.findall(r"^out  (\S+)", subprocess.check_output([MEMCREST, "--list-formats"], text=True), re.M)
FORMATS = list(dict.fromkeys(FORMATS))
SIZES = ["batch=2,seq=64", "batch=2,seq=576", "batch=2", "seq=64", None]
SCHEMA = tempfile.NamedTemporaryFile(suffix=".xsd")
SCHEMA.write(subprocess.check_output([MEMCREST, "--list-schema"]))
SCHEMA.flush()


def write(model, fmt, sizes):
    options = ["--dim", sizes] if sizes else []
    return subprocess.run([MEMCREST, "estimate", model, *options, "--allow-incomplete", "-q", "-f", fmt], capture_output=True)


def local(e):
    return e.tag.rsplit("}", 1)[-1]


def grouped(text):
    return int(text.replace(",", ""))


def of_xml(data, peak):
    r = subprocess.run(["xmllint", "--noout", "--schema", SCHEMA.name, "-"], input=data, capture_output=True)
    assert r.returncode == 0, r.stderr[:200]
    e = tree.fromstring(data).find("peak")
    assert int(e.find("factors").get("total")) == peak
    return int(e.get("tensors"))


def of_graphml(data, peak):
    root = tree.fromstring(data)
    names = {e.get("id"): e.get("attr.name") for e in root if local(e) == "key"}
    ids = [n.get("id") for n in root.iter() if local(n) == "node"]
    assert len(ids) == len(set(ids))
    known, total = set(ids), 0
    for n in root.iter():
        if local(n) == "edge":
            assert n.get("source") in known and n.get("target") in known
        if local(n) == "node" and n.get("id")[0] == "t":
            total += sum(int(d.text) for d in n if d.get("key") == "total")
    assert total == peak, ("nodes hold", total)
    return sum(int(d.text) for g in root if local(g) == "graph" for d in g if names.get(d.get("key")) == "peak_tensors_bytes")


def of_gexf(data, peak):
    root = tree.fromstring(data)
    titles = {a.get("id"): a.get("title") for a in root.iter() if local(a) == "attribute"}
    values = [(titles[v.get("for")], v.get("value")) for v in root.iter() if local(v) == "attvalue"]
    assert sum(int(v) for t, v in values if t == "total_bytes") == peak, "nodes"
    return int(re.search(rb"peak_tensors_bytes=(\d+)", data).group(1))


def of_dot(data, peak):
    subprocess.run(["nop", "-p"], input=data, check=True, capture_output=True)
    assert sum(map(int, re.findall(rb'\bbytes="(\d+)"', data))) == peak, "nodes"
    return int(re.search(rb'peak_bytes="(\d+)"', data).group(1))


def of_html(data, peak):
    assert not re.search(rb"""(src|href)=["']?http""", data) and len(data) < 2 << 20
    points = json.loads(re.search(rb'id="points">(.*?)</script>', data, re.S).group(1))
    assert max(points["live"]) == peak == sum(a[points["peak"]] for a in points["at"])
    return grouped(re.search(r"\(([\d,]+) bytes\)", data.decode()).group(1))


def of_csv(data, peak):
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert rows[0]["path"] == "" and len({r["path"] for r in rows}) == len(rows)
    return int(rows[0]["total"])


def of_md(data, peak):
    assert len(data) < 1 << 20
    return grouped(re.search(r"\(([\d,]+) bytes\)", data.decode()).group(1))


def of_sarif(data, peak):
    run = json.loads(data)["runs"][0]
    rules = {r["id"] for r in run["tool"]["driver"]["rules"]}
    assert all(x["ruleId"] in rules and x["locations"][0]["physicalLocation"]["region"]["startLine"] for x in run["results"])
    return next(x for x in run["results"] if x["ruleId"] == "MEM001")["properties"]["tensors"]


def of_github(data, peak):
    lines = data.decode().splitlines()
    assert all(re.match(r"::(notice|warning|error) file=", line) for line in lines)
    assert max(collections.Counter(line.split()[0] for line in lines).values()) <= 10
    return grouped(re.search(r"::(?:at least )?([\d,]+) bytes", lines[0]).group(1))


def of_netron(data, peak):
    o = json.loads(data)
    at = collections.Counter()
    for m in o["metrics"]:
        at[m["kind"], m["name"]] += m["value"]
    assert at["node", "memcrest.bytes_at_peak"] + at["model", "memcrest.bytes_elsewhere"] == peak
    return at["model", "memcrest.peak_bytes"]


def of_model_explorer(data, peak):
    o = json.loads(data)
    assert sum(x["value"] for x in o["results"].values()) <= peak
    return peak


def of_snapshot(data, peak):
    live = most = 0
    for e in pickle.loads(data)["device_traces"][0]:
        if e.get("category", "unknown") != "unknown":
            live += e["size"] * {"alloc": 1, "free_completed": -1}.get(e["action"], 0)
            most = max(most, live)
    return most


def of_perfetto(data, peak):
    return max(e["args"]["total"] for e in json.loads(data)["traceEvents"] if e["ph"] == "C")


def of_flamegraph(data, peak):
    return sum(int(line.rsplit(" ", 1)[1]) for line in data.decode().splitlines())


def of_events(data, peak):
    rows = list(csv.DictReader(io.StringIO(data.decode()), delimiter="\t", quoting=csv.QUOTE_NONE))
    live = most = 0
    for r in rows:
        live += (-(-int(r["bytes"]) // 512) * 512) * (1 if r["action"] == "alloc" else -1)
        most = max(most, live)
    return most


def of_json(data, peak):
    o = json.loads(data)
    assert sum(o["peak"]["factors"].values()) == peak == max(s["tensors"] for s in o["steps"])
    assert sum(sum(m["factors"].values()) for m in o["modalities"]) == peak
    return o["peak"]["tensors"]


def of_text(data, peak):
    return grouped(re.search(r"\(([\d,]+) bytes\)", data.decode()).group(1))


right = collections.Counter()
wrong = 0
for model in sys.argv[2:]:
    for sizes in SIZES:
        first = write(model, "json", sizes)
        if first.returncode == 0:
            break
    if first.returncode:
        print(f"{model}: {first.stderr.decode()[:200]}")
        wrong += 1
        continue
    peak = json.loads(first.stdout)["peak"]["tensors"]
    for fmt in FORMATS:
        a, b = write(model, fmt, sizes), write(model, fmt, sizes)
        try:
            assert a.returncode == 0, a.stderr[:200]
            assert a.stdout == b.stdout, "two runs differ"
            got = globals()["of_" + fmt.replace("-", "_")](a.stdout, peak)
            assert got == peak, f"{got} is not {peak}"
            right[fmt] += 1
        except Exception as e:  # noqa: BLE001: whatever a reader says
            print(f"{model} {sizes} {fmt}: {type(e).__name__} {e}"[:300])
            wrong += 1
print(" ".join(f"{f}:{right[f]}" for f in FORMATS), "; wrong:", wrong)
sys.exit(wrong > 0)
