// What is looked at before the programs of a folder start.

#include "driver/launch/check_run.h"

#include <doctest/doctest.h>

#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"
#include "wire/data_table.h"

namespace graphpipe::tests {
namespace {

/// A safetensors file of float32 tensors of one element.
std::string tensors(const std::vector<std::string>& names) {
  std::string header = "{", data;
  for (const std::string& name : names) {
    header += text(header.size() > 1 ? "," : "", "\"", name, R"(":{"dtype":"F32","shape":[1],"data_offsets":[)",
                   data.size(), ",", data.size() + 4, "]}");
    data.append(4, '\0');
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int byte = 0; byte < 8; ++byte) length += static_cast<char>(header.size() >> (8 * byte) & 255);
  return length + header + data;
}

TEST_CASE("a file of weights that has others than the model's is warned of, but for PyTorch's counters and ties") {
  const graphpipe::testing::TemporaryFolder folder;
  folder.write("weights.safetensors", tensors({"a.weight", "b.weight"}));
  wire::DataTable table;
  table.batch = 1;
  table.tied_names = {"also.a.weight"};
  folder.write(std::string(wire::kDataTableFile), wire::print_data_table(table));
  const auto found = [&](const std::vector<std::string>& names) {
    folder.write("given.safetensors", tensors(names));
    wire::RunOptions run;
    run.data.weights = folder / "given.safetensors";
    return driver::check_run_files(folder / ".", run);
  };
  CHECK(found({"a.weight", "b.weight", "also.a.weight", "norm.num_batches_tracked"}).empty());
  const Diagnostics told = found({"a.weight", "head.weight", "tail.weight"});
  REQUIRE(told.size() == 1);
  CHECK(told.front().severity == Severity::kWarning);
  CHECK(holds(to_line(told.front()), "2 tensors are not of the model, and not read; the first is 'head.weight'"));
}

}  // namespace
}  // namespace graphpipe::tests
