// Runs the accepted ones of ONNX's node tests and compares them with the outputs that ONNX gives:
//   run_conformance CASES WEIGHTS
// CASES has NAME/input_<i>.pb, NAME/output_<i>.pb and cases.txt, as make_cases.py writes them; WEIGHTS what
// write_conformance wrote. Prints a line for each: "NAME equal", "NAME random" (types and shapes are equal, and no more
// can be), "NAME uncompared WHY" or "NAME different WHY".

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "runtime/error.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/tensor_proto.h"
#include "runtime/tensors.h"
#include "support/mapped_file.h"
#include "tests/conformance/case_table.h"

namespace graphpipe::conformance {
namespace {

namespace fs = std::filesystem;

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
};

std::map<std::string, Tolerance> tolerances(const fs::path& cases) {
  std::map<std::string, Tolerance> all;
  std::ifstream file(cases / "cases.txt");
  std::string name;
  for (Tolerance each; file >> name >> each.relative >> each.absolute;) all[name] = each;
  return all;
}

// Files KIND_0.pb, KIND_1.pb, ... by the names of the tensors in them. Throws RunError.
std::map<std::string, at::Tensor> stored_tensors(const fs::path& folder, const std::string& kind) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with(kind + "_")) continue;
    const MappedFile file = runtime::value_or_throw(MappedFile::open(entry.path().string()));
    runtime::StoredTensor stored = runtime::read_tensor_proto(file.bytes(), entry.path().string());
    tensors[stored.name] =
        at::from_blob(stored.bytes.data(), stored.dims, at::TensorOptions(runtime::scalar_type(stored.type))).clone();
  }
  return tensors;
}

// Sums of 16-bit numbers are rounded in another order by every implementation: two units in the last place are equal.
double relative_tolerance(at::ScalarType type, Tolerance tolerance) {
  if (type == at::kHalf) return std::max(tolerance.relative, 2 * 0x1p-10);
  return type == at::kBFloat16 ? std::max(tolerance.relative, 2 * 0x1p-7) : tolerance.relative;
}

// What differs; empty where nothing does. The law of numpy.testing.assert_allclose.
std::string difference(const at::Tensor& found, const at::Tensor& expected, Tolerance tolerance, bool values) {
  if (found.scalar_type() != expected.scalar_type())
    return text("type ", c10::toString(found.scalar_type()), ", not ", c10::toString(expected.scalar_type()));
  if (found.sizes() != expected.sizes()) {
    std::ostringstream shapes;
    shapes << "shape " << found.sizes() << ", not " << expected.sizes();
    return shapes.str();
  }
  if (!values || expected.numel() == 0) return {};
  const at::Tensor a = found.to(at::kDouble), b = expected.to(at::kDouble);
  const double relative = relative_tolerance(found.scalar_type(), tolerance);
  if (at::allclose(a, b, relative, tolerance.absolute, /*equal_nan=*/true)) return {};
  return text("largest difference ", (a - b).abs().max().item<double>());
}

std::string run_case(const Case& each, const fs::path& folder, const runtime::Safetensors& weights,
                     Tolerance tolerance) {
  const std::map<std::string, at::Tensor> inputs = stored_tensors(folder, "input"),
                                          expected = stored_tensors(folder, "output");
  std::vector<at::Tensor> parameters, slot(each.inputs.size() + each.outputs.size());
  for (const char* name : each.weights) parameters.push_back(weights.view(*weights.find(name)).clone());
  for (size_t i = 0; i < each.inputs.size(); ++i) {
    const auto found = inputs.find(each.inputs[i].name);
    if (found == inputs.end()) return text("uncompared it has no file for the input ", each.inputs[i].name);
    slot[i] = found->second;
  }
  runtime::StageArguments arguments;
  arguments.weights = parameters.data();
  arguments.slot = slot.data();
  arguments.samples = each.samples;
  each.run(arguments);
  size_t compared = 0;
  for (size_t i = 0; i < each.outputs.size(); ++i) {
    const auto found = expected.find(each.outputs[i].name);
    if (found == expected.end()) continue;
    ++compared;
    const int weight = each.outputs[i].weight;
    at::Tensor made = weight < 0 ? slot[each.inputs.size() + i] : parameters[static_cast<size_t>(weight)];
    if (each.one_sample && made.dim() == found->second.dim() + 1) made = made.squeeze(0);
    const std::string what = difference(made, found->second, tolerance, !each.is_random);
    if (!what.empty()) return text("different ", each.outputs[i].name, ": ", what);
  }
  if (compared < expected.size()) return text("different ", expected.size() - compared, " outputs are missing");
  if (compared == 0) return "uncompared its outputs are no tensors";
  return each.is_random ? "random" : "equal";
}

int run(const fs::path& cases, const fs::path& weights) {
  at::set_num_threads(1);
  const std::map<std::string, Tolerance> known = tolerances(cases);
  for (const std::span<const Case> part : all_cases())
    for (const Case& each : part) {
      std::string result;
      try {
        const auto tolerance = known.find(each.name);
        result = run_case(each, cases / each.name,
                          runtime::Safetensors((weights / (std::string(each.name) + ".safetensors")).string()),
                          tolerance == known.end() ? Tolerance() : tolerance->second);
      } catch (const runtime::RunError& error) {
        result = text("uncompared ", error.what());
      } catch (const std::exception& error) {
        const std::string what = error.what();
        result = "different it fails: " + what.substr(0, what.find('\n'));
      }
      std::cout << each.name << " " << result << std::endl;
    }
  return 0;
}

}  // namespace
}  // namespace graphpipe::conformance

int main(int argc, char** argv) {
  if (argc == 3) return graphpipe::conformance::run(argv[1], argv[2]);
  std::cerr << "usage: run_conformance CASES WEIGHTS\n";
  return 2;
}
