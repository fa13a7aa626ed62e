// Netron's own attachment reader finds what we say of nodes and the model. By hand: node tests/viewers/netron_reads.mjs .../netron/view.js ATTACHMENT.json
import fs from 'node:fs';

const source = fs.readFileSync(process.argv[2], 'utf8');
const cut = (name) => {
    const from = source.indexOf(`${name} = class {`);
    return source.slice(from, source.indexOf('\n};', from) + 3);
};
const metadata = new Function(`const metadata = { Attachment: class {} };${cut('metadata.Attachment.Container')}${cut('metadata.Argument')}return metadata;`)();
const data = JSON.parse(fs.readFileSync(process.argv[3], 'utf8'));
if (data.signature !== 'netron:attachment') {
    throw new Error('signature');
}
const metrics = new metadata.Attachment.Container('metrics');
metrics.open(data.metrics);
const get = (list, name) => (list.find((x) => x.name === name) || { value: 0 }).value;
const model = metrics.model({ name: '' });
let total = get(model, 'memcrest.bytes_elsewhere');
const names = new Set(data.metrics.filter((x) => x.kind === 'node').map((x) => x.target));
for (const name of names) {
    total += get(metrics.node({ name }), 'memcrest.bytes_at_peak');
}
if (total !== get(model, 'memcrest.peak_bytes')) {
    throw new Error(`${total} of ${get(model, 'memcrest.peak_bytes')}`);
}
console.log(names.size, 'nodes', total, 'bytes');
