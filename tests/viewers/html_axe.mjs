// What a person with a keyboard, a screen reader or a phone meets: axe-core finds nothing, the page is never wider than the window, asks for nothing, says nothing on the console, and the tree
// keeps the focus. By hand, with puppeteer-core and axe-core: node tests/viewers/html_axe.mjs .../axe-core/axe.min.js PAGE.html
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';

const [axe, page] = process.argv.slice(2).map((x) => path.resolve(x));
const puppeteer = createRequire(axe)('puppeteer-core');
const browser = await (puppeteer.default || puppeteer).launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
let bad = 0;
for (const width of [1200, 390, 320]) {
    for (const scheme of ['light', 'dark']) {
        const p = await browser.newPage();
        const said = [];
        let asked = 0;
        p.on('console', (m) => said.push(m.text()));
        p.on('pageerror', (e) => said.push(String(e)));
        p.on('request', () => asked++);
        await p.setViewport({ width, height: 800, isMobile: width < 500, hasTouch: width < 500 });
        await p.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
        await p.goto(`file://${page}`);
        const wide = await p.evaluate(() => document.documentElement.scrollWidth);
        await p.evaluate(fs.readFileSync(axe, 'utf8'));
        const found = (await p.evaluate(() => globalThis.axe.run())).violations.map((v) => `${v.id} at ${v.nodes[0].target}`);
        await p.focus('#modules .x');
        await p.keyboard.press('Enter');
        await p.keyboard.press('Enter');
        const kept = await p.evaluate(() => document.activeElement.className === 'x');
        await p.focus('#timeline');
        await p.keyboard.press('Enter');
        const spoken = await p.evaluate(() => document.getElementById('said').textContent);
        console.log(width, scheme, 'width', wide, 'requests', asked, 'focus kept', kept, 'said at the peak:', spoken, ...found, ...said);
        bad += wide > width || asked !== 1 || !kept || !spoken || found.length + said.length > 0;
        await p.close();
    }
}
await browser.close();
process.exit(bad ? 1 : 0);
