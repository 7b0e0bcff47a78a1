#include "driver/launch/choose_kernels.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/driver/variable.h"
#include "tests/support/onnx_text.h"
#include "wire/product_table.h"

namespace graphpipe::tests {
namespace {

using graphpipe::testing::TemporaryFolder;

/// Whether kernels are measured where GRAPHPIPE_CALIBRATION has this value.
bool measures(const std::optional<std::string>& value) {
  const TemporaryFolder folder;
  wire::ProductTable table{.threads = 1, .products = {{.work = {.rows = 512, .inner = 768, .columns = 3072}}}};
  folder.write(text("out/", wire::kProductsFile), wire::print_product_table(table));
  table.products.front().kernel = wire::ProductKernel::kOneDnn;
  folder.write("measured", wire::print_product_table(table));
  folder.write("runtime/bin/graphpipe-calibrate", text("#!/bin/sh\ncat '", folder / "measured", "'\n"));
  std::filesystem::permissions(folder / "runtime/bin/graphpipe-calibrate", std::filesystem::perms::owner_all);
  const Variable runtime("GRAPHPIPE_RUNTIME_DIR", folder / "runtime");
  const Variable calibration("GRAPHPIPE_CALIBRATION", value);
  CHECK(driver::choose_kernels(folder / "out").ok());
  return std::filesystem::exists(folder / text("out/", wire::kKernelsFile));
}

TEST_CASE("a table of other products, or of an older version, does not stay where none is measured") {
  const Variable calibration("GRAPHPIPE_CALIBRATION", "default");
  wire::ProductTable table{.threads = 1, .products = {{.work = {.rows = 512, .inner = 768, .columns = 3072}}}};
  const std::string asked = wire::print_product_table(table);
  table.products.front().kernel = wire::ProductKernel::kOneDnn;
  const std::string measured = wire::print_product_table(table);
  table.threads = 2;
  for (const auto& [found, stays] : {std::pair(measured, true),
                                     {wire::print_product_table(table), false},
                                     {"graphpipe-products 1\nthreads 1\nproduct 512 768 3072 n n onednn\n", false}}) {
    const TemporaryFolder folder;
    folder.write(text("out/", wire::kProductsFile), asked);
    folder.write(text("out/", wire::kKernelsFile), found);
    CHECK(driver::choose_kernels(folder / "out").ok());
    CHECK(std::filesystem::exists(folder / text("out/", wire::kKernelsFile)) == stays);
  }
}

TEST_CASE("a table whose kernel does not fit its convolution, which programs would not use, does not stay") {
  const Variable calibration("GRAPHPIPE_CALIBRATION", "default");
  wire::TimedConvolution deep{.work = {wire::ConvolutionPass::kForward, 2, 512, 512, 7, 7, 1, 1}};
  REQUIRE_FALSE(wire::fits_kernel(deep.work, wire::ConvolutionKernel::kWinograd4));
  const std::string asked = wire::print_product_table({.convolutions = {deep}});
  for (const auto& [kernel, stays] :
       {std::pair(wire::ConvolutionKernel::kWinograd2, true), {wire::ConvolutionKernel::kWinograd4, false}}) {
    deep.kernel = kernel;
    const TemporaryFolder folder;
    folder.write(text("out/", wire::kProductsFile), asked);
    folder.write(text("out/", wire::kKernelsFile), wire::print_product_table({.convolutions = {deep}}));
    CHECK(driver::choose_kernels(folder / "out").ok());
    CHECK(std::filesystem::exists(folder / text("out/", wire::kKernelsFile)) == stays);
  }
}

TEST_CASE("a folder whose products are of an older version is to be generated again") {
  const TemporaryFolder folder;
  folder.write(text("out/", wire::kProductsFile), "graphpipe-products 2\nthreads 1\nproduct 512 768 3072 n n\n");
  const Status refused = driver::choose_kernels(folder / "out");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems()[0].code == Code::kMalformedFile);
  CHECK(refused.problems()[0].hint.find("again") != std::string::npos);
}

TEST_CASE("kernels are measured unless GRAPHPIPE_CALIBRATION says what the machine does; empty it says nothing") {
  CHECK(measures(std::nullopt));
  CHECK(measures(""));
  CHECK_FALSE(measures("default"));
  CHECK_FALSE(measures("machine.json"));
}

}  // namespace
}  // namespace graphpipe::tests
