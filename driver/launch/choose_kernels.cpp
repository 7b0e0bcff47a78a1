#include "driver/launch/choose_kernels.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "driver/launch/calibration.h"
#include "driver/launch/failed_run.h"
#include "driver/launch/launch.h"
#include "driver/launch/output_folder.h"
#include "driver/launch/process.h"
#include "wire/exit_codes.h"
#include "wire/product_table.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

std::optional<wire::ProductTable> read_table(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  return wire::parse_product_table(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// Whether both are of the same products or convolutions, and `measured` has a kernel for each.
template <typename Work, typename Kernel>
bool is_measured(const std::vector<wire::Timed<Work, Kernel>>& asked,
                 const std::vector<wire::Timed<Work, Kernel>>& measured) {
  using Each = wire::Timed<Work, Kernel>;
  return std::ranges::equal(asked, measured, {}, &Each::work, &Each::work) &&
         std::ranges::all_of(measured, [](const Each& each) { return each.kernel.has_value(); });
}

bool is_measured(const wire::ProductTable& asked, const std::optional<wire::ProductTable>& measured) {
  return measured && measured->threads == asked.threads && is_measured(asked.products, measured->products) &&
         is_measured(asked.convolutions, measured->convolutions);
}

}  // namespace

Status choose_kernels(const std::string& folder) {
  const std::string path = folder + "/" + std::string(wire::kKernelsFile);
  const std::string products_path = folder + "/" + std::string(wire::kProductsFile);
  const std::optional<wire::ProductTable> products = read_table(products_path);
  std::error_code error;
  if (!products && fs::exists(products_path, error))
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(products_path),
                      .message = "this is no table of products and convolutions, or one of another version",
                      .hint = "run `graphpipe generate` or `graphpipe compile` again"};
  if (!products || (products->products.empty() && products->convolutions.empty())) {
    fs::remove(path, error);
    return Ok{};
  }
  if (is_measured(*products, read_table(path))) return Ok{};
  fs::remove(path, error);  // of other products, or of another version: programs would refuse it
  if (calibration_override() || !fs::exists(calibration_program(), error)) return Ok{};
  wire::RunOptions run;
  run.launch.threads = static_cast<int>(products->threads);
  run.launch.folder = folder;
  GP_TRY(const RunOutcome outcome, launch_program(kCalibrationProgram, 1, run));
  if (outcome.exit_code == wire::kExitOk && is_measured(*products, wire::parse_product_table(outcome.report)))
    return write_if_changed(path, outcome.report);
  if (interrupted()) return was_interrupted("the choice of kernels");
  return with_problems(
      {.code = Code::kEnvironment,
       .origin = ModelText(folder),
       .message = text("the kernels of the products could not be measured: exit code ", outcome.exit_code),
       .hint = "what is named beside this says why; GRAPHPIPE_CALIBRATION=default leaves it out"},
      outcome);
}

}  // namespace graphpipe::driver
