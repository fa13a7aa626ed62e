/*
 * sarif: findings for code scanning (SARIF 2.1.0). A model has no lines, so every result points at its first and names the module as
 * the logical location; bytes are properties. The rules are the four of this file and the program's own diagnostics.
 */
#include "json_part.h"

#include <stdlib.h>

#define LARGEST 10

enum rule { PEAK, OVER, MAY_BE_OVER, LARGE, NRULE };

static const struct {
	const char *id, *name, *level, *help;
} rules[NRULE] = {
	[PEAK] = {"MEM001", "PeakMemory", "note", "The largest number of bytes that the tensors of two training steps hold at once, and the operator at which they do."},
	[OVER] = {"MEM002", "BudgetExceeded", "error", "The job needs more memory than the budget or the device has."},
	[MAY_BE_OVER] = {"MEM003", "BudgetMayBeExceeded", "warning", "Whether the job fits depends on what is only known as a range: the CUDA context or kernels' scratch space."},
	[LARGE] = {"MEM010", "LargestAtPeak", "note", "One of the modules that hold most memory at the peak, like modules taken together."},
};

static json_t *
message(json_t *text)
{
	json_t *o = json_object();

	json_put(&o, "text", text);
	return o;
}

/* ---- where ---------------------------------------------------------------------------------------------------------- */

/* A relative URI that is the same on every machine: of an absolute path the last part. */
static json_t *
uri(struct str file)
{
	struct buf b = {0};
	json_t *out;

	if (file.n && file.p[0] == '/')
		for (int64_t cut; (cut = str_find(file, '/')) >= 0;)
			file = str_sub(file, (uint32_t)cut + 1, file.n);
	while (str_starts(file, S("./")))
		file = str_sub(file, 2, file.n);
	for (uint32_t i = 0; i < file.n; i++) {
		unsigned char ch = (unsigned char)file.p[i];
		bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '.' || ch == '_' || ch == '-' || ch == '/';

		buf_fmt(&b, plain ? "%c" : "%%%02X", ch);
	}
	out = b.failed ? NULL : json_text((struct str){b.p, (uint32_t)b.n});
	free(b.p);
	return out;
}

static json_t *
location(const struct report *r, struct str module)
{
	json_t *o = json_object(), *physical = json_object(), *artifact = json_object(), *region = json_object(), *logical = json_object(), *list = json_array();

	json_put(&artifact, "uri", uri(r->file));
	json_put(&region, "startLine", json_integer(1));
	json_put(&physical, "artifactLocation", artifact);
	json_put(&physical, "region", region);
	json_put(&o, "physicalLocation", physical);
	json_put(&logical, "fullyQualifiedName", json_text(module.n ? module : S("(model)")));
	json_put(&logical, "kind", json_string("module"));
	json_add(&list, logical);
	json_put(&o, "logicalLocations", list);
	return o;
}

/* The same finding in another run has the same one: it is made of the rule and the module, not of sizes. */
static json_t *
fingerprint(const char *rule, struct str module)
{
	uint64_t h = 14695981039346656037u;
	json_t *o = json_object();

	for (const char *p = rule; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211u;
	for (uint32_t i = 0; i < module.n; i++)
		h = (h ^ (unsigned char)module.p[i]) * 1099511628211u;
	json_put(&o, "memcrest/v1", json_fmt("%016llx", (unsigned long long)h));
	return o;
}

/* ---- results ---------------------------------------------------------------------------------------------------------- */

static json_t *
result(const struct report *r, const char *rule, const char *level, json_t *text, struct str module)
{
	json_t *o = json_object(), *locations = json_array();

	json_put(&o, "ruleId", json_string(rule));
	json_put(&o, "level", json_string(level));
	json_put(&o, "message", message(text));
	json_add(&locations, location(r, module));
	json_put(&o, "locations", locations);
	json_put(&o, "partialFingerprints", fingerprint(rule, module));
	return o;
}

static json_t *
peak_result(const struct report *r, struct emit *e)
{
	const struct step_row *st = &r->steps[r->peak_step];
	struct str module = scope_path(r->g, r->g->nodes[r->peak_node].scope), place = peak_place(r, e->a);
	json_t *o, *p = json_object();
	char h[32], x[32];

	o = result(r, rules[PEAK].id, rules[PEAK].level, json_fmt("The peak of tensors is %s%s (%s bytes), in step %u, %s: %.*s", r->lower_bound ? "at least " : "",
	    human_bytes(st->tensors, h), exact_bytes(st->tensors, x), r->peak_step, phase_name(st->phase), SFMT(place)), module);
	json_put(&p, "tensors", json_bytes(st->tensors));
	json_put(&p, "allocated", json_bytes(r->memory.allocated));
	json_put(&p, "reserved", json_bytes(r->memory.reserved));
	json_put(&p, "factors", json_factors(peak_factors(r)));
	json_put(&o, "properties", p);
	return o;
}

static void
verdict_result(const struct report *r, json_t **list)
{
	const struct verdict *v = &r->verdict;
	enum rule k = v->sure ? OVER : MAY_BE_OVER;
	json_t *o, *p;
	char h[32];

	if (!v->asked || (v->sure && v->fits))
		return;
	o = result(r, rules[k].id, rules[k].level, json_fmt("%s a budget of %s", v->sure ? "This job does not fit in" : "This job may not fit in",
	    human_bytes(v->budget, h)), S(""));
	p = json_object();
	json_put(&p, "verdict", json_verdict(v));
	json_put(&o, "properties", p);
	json_add(list, o);
}

static void
large_results(const struct report *r, json_t **list)
{
	char h[32];

	for (uint32_t i = 0; i < r->nmodules_alike && i < LARGEST; i++) {
		const struct alike_row *m = &r->modules_alike[i];
		json_t *p = json_object(), *o;

		o = result(r, rules[LARGE].id, rules[LARGE].level, json_fmt("%.*s holds %s at the peak", SFMT(m->name), human_bytes(m->bytes, h)), m->name);
		json_put(&p, "bytes", json_bytes(m->bytes));
		json_put(&p, "count", json_integer(m->count));
		json_put(&p, "factors", json_factors(&m->at));
		json_put(&o, "properties", p);
		json_add(list, o);
	}
}

static void
diag_results(const struct report *r, json_t **list, const struct diag *d, uint32_t n)
{
	static const char *const level[] = {[SEV_NOTE] = "note", [SEV_WARNING] = "warning", [SEV_ERROR] = "error"};

	for (uint32_t i = 0; i < n && i < 1000; i++)
		json_add(list, result(r, diag_name(d[i].code), level[d[i].severity], json_text(d[i].text), S("")));
}

/* ---- rules --------------------------------------------------------------------------------------------------------------- */

static json_t *
rule(const char *id, const char *name, const char *help, const char *level)
{
	json_t *o = json_object(), *configuration = json_object();

	json_put(&o, "id", json_string(id));
	if (name)
		json_put(&o, "name", json_string(name));
	json_put(&o, "shortDescription", message(json_string(help)));
	json_put(&o, "fullDescription", message(json_string(help)));
	json_put(&configuration, "level", json_string(level));
	json_put(&o, "defaultConfiguration", configuration);
	return o;
}

static json_t *
driver(void)
{
	static const char *const level[] = {[SEV_NOTE] = "note", [SEV_WARNING] = "warning", [SEV_ERROR] = "error"};
	json_t *o = json_object(), *list = json_array();

	json_put(&o, "name", json_string("memcrest"));
	json_put(&o, "semanticVersion", json_string(MC_VERSION));
	for (unsigned i = 0; i < NRULE; i++)
		json_add(&list, rule(rules[i].id, rules[i].name, rules[i].help, rules[i].level));
	for (unsigned i = 1; i < DIAG_COUNT; i++)
		json_add(&list, rule(diag_name(i), NULL, diag_format(i), level[diag_severity(i)]));
	json_put(&o, "rules", list);
	return o;
}

static bool
write(const struct report *r, struct emit *e)
{
	json_t *peak = peak_result(r, e), *o = json_object(), *run = json_object(), *tool = json_object(), *results = json_array(), *runs = json_array();

	json_put(&o, "$schema", json_string("https://json.schemastore.org/sarif-2.1.0.json"));
	json_put(&o, "version", json_string("2.1.0"));
	json_put(&tool, "driver", driver());
	json_put(&run, "tool", tool);
	json_put(&run, "columnKind", json_string("utf16CodeUnits"));
	json_add(&results, peak);
	verdict_result(r, &results);
	large_results(r, &results);
	diag_results(r, &results, r->load_diags, r->nload_diag);
	diag_results(r, &results, r->diags, r->ndiag);
	json_put(&run, "results", results);
	json_add(&runs, run);
	json_put(&o, "runs", runs);
	return json_print(o, e->b);
}

const struct backend backend_sarif = {"sarif", "findings for code scanning (SARIF 2.1.0)", false, write};
