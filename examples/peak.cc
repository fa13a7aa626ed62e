// The same from C++: the handles in unique_ptr.
#include <memcrest.h>

#include <iostream>
#include <memory>

int
main(int argc, char **argv)
{
	mc_model *model = nullptr;
	mc_report *report = nullptr;
	mc_status status = argc == 2 ? mc_load_path(argv[1], nullptr, &model) : MC_BAD_INPUT;
	std::unique_ptr<mc_model, decltype(&mc_model_free)> m(model, mc_model_free);

	if (status == MC_OK)
		status = mc_analyze(m.get(), nullptr, nullptr, &report);
	std::unique_ptr<mc_report, decltype(&mc_report_free)> r(report, mc_report_free);
	if (status != MC_OK && status != MC_INCOMPLETE)
		return status;
	for (const char *name : {"tensors", "reserved", "param", "grad", "opt", "act"}) {
		uint64_t bytes = 0;
		if (mc_report_number(r.get(), name, &bytes) == MC_OK)
			std::cout << name << " " << bytes << "\n";
	}
	return 0;
}
