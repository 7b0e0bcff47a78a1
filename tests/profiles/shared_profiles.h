#pragma once
// The profiles that the PipeDream project published.

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "files/pipedream_profile.h"
#include "tests/support/test_data.h"

namespace graphpipe::tests {

inline std::optional<ir::LayerGraph> pipedream_profile(const std::string& name) {
  auto graph = files::read_pipedream_profile(data_path("pipedream/" + name + ".txt"));
  REQUIRE(graph.ok());
  return *std::move(graph);
}

}  // namespace graphpipe::tests
