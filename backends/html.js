"use strict";
/* The page is whole without this: it adds the cursor of the timeline and folding, sorting and finding in the module tree. */
(function () {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	function human(n) {
		let u = 0;
		while (n >= 1024 && u < 5) { n /= 1024; u++; }
		return (u ? n.toFixed(2) : n) + " " + units[u];
	}
	function make(tag, text, cls) {
		const e = document.createElement(tag);
		if (text !== undefined) e.textContent = text;
		if (cls) e.className = cls;
		return e;
	}

	/* ---- the timeline's cursor: mouse, touch and arrow keys */
	const plot = document.getElementById("timeline");
	if (plot) {
		const d = JSON.parse(document.getElementById("points").textContent), said = document.getElementById("said");
		const cursor = make("div"), tip = make("div");
		let at = -1;
		cursor.id = "cursor"; tip.id = "tip"; cursor.hidden = tip.hidden = true;
		plot.append(cursor, tip);
		function show(i, speak) {
			at = Math.max(0, Math.min(d.x.length - 1, i));
			const left = d.x[at] / 10, t = make("table"), title = d.names[d.op[at]] + (d.module[at] ? " of " + d.names[d.module[at]] : "");
			cursor.style.left = left + "%";
			tip.style.left = left < 55 ? "calc(" + left + "% + 10px)" : "auto";
			tip.style.right = left < 55 ? "auto" : "calc(" + (100 - left) + "% + 10px)";
			tip.replaceChildren(make("b", human(d.live[at])), make("div", d.phases[d.phase[at]]), make("div", title), t);
			d.factors.forEach(function (f, k) {
				if (!d.at[k][at]) return;
				const row = t.insertRow(), key = row.insertCell();
				key.append(make("i", "", f), document.createTextNode(" " + d.words[k]));
				key.firstChild.style.cssText = "display:inline-block;width:9px;height:9px;border-radius:2px";
				row.insertCell().textContent = human(d.at[k][at]);
			});
			cursor.hidden = tip.hidden = false;
			if (speak) said.textContent = human(d.live[at]) + ", " + d.phases[d.phase[at]] + ", " + title;
		}
		function hide() { cursor.hidden = tip.hidden = true; }
		plot.addEventListener("pointermove", function (e) {
			const r = plot.getBoundingClientRect(), x = (e.clientX - r.left) / r.width * 1000;
			let lo = 0, hi = d.x.length - 1;
			while (lo < hi) { const m = (lo + hi) >> 1; if (d.x[m] < x) lo = m + 1; else hi = m; }
			show(lo && x - d.x[lo - 1] < d.x[lo] - x ? lo - 1 : lo, false);
		});
		plot.addEventListener("pointerleave", hide);
		plot.addEventListener("blur", hide);
		plot.addEventListener("keydown", function (e) {
			const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50}[e.key];
			if (by) show((at < 0 ? d.peak : at) + by, true);
			else if (e.key === "Home") show(0, true);
			else if (e.key === "End") show(d.x.length - 1, true);
			else if (e.key === "Enter" || e.key === " ") show(d.peak, true);
			else if (e.key === "Escape") hide();
			else return;
			e.preventDefault();
		});
	}

	/* ---- the module tree */
	const table = document.getElementById("modules");
	if (!table) return;
	const body = table.tBodies[0], rows = Array.from(body.rows), kids = rows.map(function () { return []; }), open = rows.map(function (r) { return r.dataset.d < 2; });
	rows.forEach(function (r, i) {
		r.index = i;
		if (i) kids[+r.dataset.p].push(i);
	});
	rows.forEach(function (r, i) {
		const name = r.cells[0].firstElementChild;
		if (!kids[i].length) { name.className = "leaf"; return; }
		const b = make("button", name.textContent, "x");
		b.type = "button";
		b.title = name.title;
		b.addEventListener("click", function () { open[i] = !open[i]; draw(); });
		name.replaceWith(b);
	});
	let order = null, sign = 1, word = "";
	function value(i) {
		const c = rows[i].cells[order];
		return c.dataset.v === undefined ? c.textContent : +c.dataset.v;
	}
	function compare(a, b) {
		const x = value(a), y = value(b);
		return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
	}
	function draw() {
		const keep = word ? rows.map(function (r) { return r.cells[0].firstElementChild.title.toLowerCase().includes(word); }) : null;
		if (keep) for (let i = rows.length - 1; i > 0; i--) if (keep[i]) keep[+rows[i].dataset.p] = true;
		const list = document.createDocumentFragment(), focus = document.activeElement;
		(function add(i, seen) {
			const b = rows[i].cells[0].firstElementChild, expanded = keep ? true : open[i];
			rows[i].hidden = !seen || (keep && !keep[i]);
			if (b.tagName === "BUTTON") b.setAttribute("aria-expanded", expanded);
			list.append(rows[i]);
			(order === null ? kids[i] : kids[i].slice().sort(compare)).forEach(function (k) { add(k, seen && expanded); });
		})(0, true);
		body.append(list);
		if (body.contains(focus)) focus.focus();        /* what is moved loses it */
	}
	Array.from(table.tHead.rows[0].cells).forEach(function (th, c) {
		const b = make("button", th.textContent);
		b.type = "button";
		b.addEventListener("click", function () {
			sign = order === c ? -sign : th.classList.contains("t") ? 1 : -1;
			order = c;
			for (const o of table.tHead.rows[0].cells) o.removeAttribute("aria-sort");
			th.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
			draw();
		});
		th.replaceChildren(b);
	});
	const tools = make("div", undefined, "tools"), find = make("input");
	find.type = "search"; find.placeholder = "Find a module"; find.setAttribute("aria-label", "Find a module");
	find.addEventListener("input", function () { word = find.value.toLowerCase(); draw(); });
	[["Expand all", true], ["Collapse all", false]].forEach(function (x) {
		const b = make("button", x[0]);
		b.type = "button";
		b.addEventListener("click", function () { open.fill(x[1]); open[0] = true; draw(); });
		tools.append(b);
	});
	tools.append(find);
	table.parentNode.before(tools);
	draw();
})();
