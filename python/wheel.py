"""wheel.py LIBRARY OUTPUT_FOLDER: the wheel, with the shared library in it, from the standard library alone; two runs give the same bytes."""

import base64
import hashlib
import os
import re
import sys
import sysconfig
import zipfile

here = os.path.dirname(os.path.abspath(__file__))


def main(library, folder):
    version = re.search(r'MC_VERSION "(.*)"', open(os.path.join(here, "..", "memcrest.h")).read()).group(1)
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = "memcrest-%s.dist-info/" % version
    files = {"memcrest/libmemcrest.so": open(library, "rb").read()}
    for name in sorted(os.listdir(os.path.join(here, "memcrest"))):
        if name.endswith((".py", ".typed")):
            files["memcrest/" + name] = open(os.path.join(here, "memcrest", name), "rb").read()
    files[info + "METADATA"] = (
        "Metadata-Version: 2.1\nName: memcrest\nVersion: %s\nSummary: Peak GPU memory of training an exported model graph, before anything runs\n"
        "License: MIT\nRequires-Python: >=3.8\n" % version
    ).encode()
    files[info + "WHEEL"] = ("Wheel-Version: 1.0\nGenerator: memcrest\nRoot-Is-Purelib: false\nTag: %s\n" % tag).encode()
    record = ""
    for name, data in files.items():
        record += "%s,sha256=%s,%d\n" % (name, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data))
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "memcrest-%s-%s.whl" % (version, tag))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    print(path)


main(*sys.argv[1:])
