#include "ir/model_spec.h"

#include <doctest/doctest.h>

namespace graphpipe::ir {
namespace {

TEST_CASE("names of options lead back to them, and others to nothing") {
  for (BatchNormMode mode :
       {BatchNormMode::kTrain, BatchNormMode::kEval, BatchNormMode::kFile, BatchNormMode::kMicroBatch})
    CHECK(batch_norm_of_name(batch_norm_name(mode)) == mode);
  CHECK_FALSE(batch_norm_of_name("").has_value());
}

}  // namespace
}  // namespace graphpipe::ir
