// Netron itself, in headless Chromium, shows our numbers of a node: of an attachment that is dropped on the open model, or of an annotated copy. By hand, with puppeteer-core, and
// `python -c 'import netron; netron.start(None, ("127.0.0.1", 8971)); input()'` running:
//     node tests/viewers/netron_page.mjs .../node_modules/puppeteer-core/package.json http://127.0.0.1:8971 MODEL ATTACHMENT.json|- PART_OF_A_NODE'S_ID [SCREENSHOT.png]
import { createRequire } from 'node:module';

const [at, url, model, attachment, part, shot] = process.argv.slice(2);
const puppeteer = createRequire(at)('puppeteer-core');
const browser = await (puppeteer.default || puppeteer).launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage();
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
await page.setViewport({ width: 1400, height: 1000 });
await page.setCookie({ name: 'consent', value: String(Date.now()), url });
await page.goto(url);
await wait(2000);
for (const file of attachment === '-' ? [model] : [model, attachment]) {
    await (await page.$('#open-file-dialog')).uploadFile(file);
    await wait(5000);
}
await page.evaluate((want) => {
    const node = [...document.querySelectorAll('.node')].find((x) => x.id.includes(want));
    (node.querySelector('.node-item') || node).dispatchEvent(new MouseEvent('click', { bubbles: true }));
}, part);
await wait(1000);
const keys = await page.evaluate(() => [...new Set(document.querySelector('#sidebar').innerHTML.match(/memcrest\.[a-z_]+/g) || [])]);
if (shot) {
    await page.screenshot({ path: shot });
}
await browser.close();
console.log(keys.join(' '));
process.exit(keys.includes('memcrest.bytes_at_peak') ? 0 : 1);
