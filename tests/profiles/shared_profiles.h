#pragma once
// The profiles that the PipeDream project published.

#include <doctest/doctest.h>

#include <string>

#include "files/pipedream_profile.h"
#include "partitioner/cost_models/layer_view.h"
#include "tests/support/test_data.h"

namespace graphpipe::tests {

inline partitioner::LayerGraph pipedream_profile(const std::string& name) {
  const auto profile = files::read_pipedream_profile(data_path("pipedream/" + name + ".txt"));
  REQUIRE(profile.ok());
  return partitioner::layers_of(*profile);
}

}  // namespace graphpipe::tests
