/* ONNX files: what the exporter dropped, as far as the file still shows it. */
#include "onnx.h"

void
onnx_report_losses(struct onnx *l)
{
	(void)l;
}
