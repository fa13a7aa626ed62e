/* Files that people take for model graphs: what each is, and what to export instead. */
#include "frontend.h"

#include <string.h>

#define EXPORT "torch.export.save(torch.export.export(model, inputs), \"model.pt2\")"

static bool
starts(const struct source *src, uint64_t at, const char *bytes, size_t n)
{
	return src->n >= at + n && memcmp(src->p + at, bytes, n) == 0;
}

/* Known first bytes. */
static const char *
by_magic(const struct source *src)
{
	static const struct {
		uint16_t at, n;
		const char *bytes, *sentence;
	} table[] = {
		{0, 24, "version https://git-lfs.", "a git-lfs pointer: the model itself was not fetched (git lfs pull)"},
		{4, 4, "PTMF", "a mobile TorchScript flatbuffer: it has bytecode and no graph of the model; export with " EXPORT " or save with torch.jit.save"},
		{4, 2, "ET", "an ExecuTorch program: memory is planned and gradients are gone; export the model itself with " EXPORT},
		{4, 4, "ORTM", "an ONNX Runtime model (.ort): convert from the .onnx file that it was made of, or export with " EXPORT},
		{4, 4, "TFL3", "a TensorFlow Lite model: it cannot be trained; export the PyTorch model with " EXPORT},
		{0, 4, "GGUF", "a GGUF file: weights for inference without a graph; export the PyTorch model with " EXPORT},
		{0, 4, "lmgg", "a GGML file: weights for inference without a graph; export the PyTorch model with " EXPORT},
		{0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights): it has no PyTorch graph"},
		{257, 5, "ustar", "a tar archive: unpack it, and give the model that is in it"},
		{0, 2, "\x1f\x8b", "a gzip file: unpack it, and give the model that is in it"},
		{0, 6, "\xfd" "7zXZ\0", "an xz file: unpack it, and give the model that is in it"},
		{0, 4, "\x28\xb5\x2f\xfd", "a zstd file: unpack it, and give the model that is in it"},
		{0, 6, "\x93NUMPY", "a NumPy array: weights without a graph; export the PyTorch model with " EXPORT},
		{0, 8, "PYTORCH1", "an archive of a PyTorch preview release, older than TorchScript: load it there, and export with " EXPORT},
		{0, 14, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", "a checkpoint of torch.save in its old format: tensors without a graph; build the model, load them, and export with " EXPORT},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (starts(src, table[i].at, table[i].bytes, table[i].n))
			return table[i].sentence;
	return NULL;
}

/* Eight bytes that are the length of a JSON header, and the header. */
static bool
is_safetensors(const struct source *src)
{
	uint64_t n = 0;

	if (src->n < 10 || src->p[8] != '{')
		return false;
	for (unsigned i = 0; i < 8; i++)
		n |= (uint64_t)src->p[i] << (8 * i);
	return n >= 2 && n <= src->n - 8 && n < 1u << 30 && memchr(src->p + 8, '"', n < 4096 ? n : 4096);
}

static bool
is_pickle(const struct source *src)
{
	return src->n > 2 && src->p[0] == 0x80 && src->p[1] >= 2 && src->p[1] <= 5 && src->p[src->n - 1] == '.';
}

static const char *
by_members(const struct zip_archive *z)
{
	struct str name;

	if (zip_has(z, S("data.pkl")) && !zip_has(z, S("constants.pkl")))
		return "a checkpoint of torch.save: tensors without a graph; build the model, load them, and export with " EXPORT;
	if (zip_has(z, S("attributes.pkl")) && zip_has(z, S("model.json")))
		return "a TorchScript archive of PyTorch 1.1 or older: load it there and save it with a newer one, or export with " EXPORT;
	if (zip_find_part(z, S("data/aotinductor/"), &name))
		return "an AOTInductor package: compiled code, without the program that it was made of; save that with " EXPORT;
	if (zip_find_part(z, S("data/executorch/"), &name))
		return "an ExecuTorch package, without the program that it was made of; save that with " EXPORT;
	return "a zip archive that holds neither a torch.export program (models/NAME.json) nor a TorchScript module (data.pkl, constants.pkl, code/)";
}

const char *
foreign_sentence(struct ctx *c, const struct source *src)
{
	const char *sentence = by_magic(src);
	struct zip_archive *z;

	if (sentence)
		return sentence;
	if (is_safetensors(src))
		return "a safetensors file: weights without a graph; build the model and export it with " EXPORT;
	if (is_pickle(src))
		return "a Python pickle: objects without a graph; load it in Python, and export the model with " EXPORT;
	z = zip_peek(c, src);
	if (!z)
		return NULL;
	sentence = by_members(z);
	zip_close_archive(c, z);
	return sentence;
}
