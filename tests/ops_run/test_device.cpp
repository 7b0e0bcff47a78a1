#include "tests/ops_run/test_device.h"

#include <cstdlib>
#include <memory>

namespace graphpipe::ops_run {

const runtime::Device& device() {
  static const std::unique_ptr<runtime::Device> opened = [] {
    const char* name = std::getenv("GRAPHPIPE_TEST_DEVICE");
    return runtime::open_device(name == nullptr ? "cpu" : name, 0);
  }();
  return *opened;
}

namespace {
[[maybe_unused]] const bool is_open = (device(), true);
}  // namespace

}  // namespace graphpipe::ops_run
