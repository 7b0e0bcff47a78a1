#pragma once
// The profiles that other projects published, and their planners asked for plans of one unit of work.

#include <doctest/doctest.h>

#include <string>

#include "files/pipedream_profile.h"
#include "partitioner/cost_models/unit_request.h"
#include "tests/support/test_data.h"

namespace graphpipe::tests {

/// A profile at its prices.
struct Priced {
  explicit Priced(Result<ir::ImportedProfile> read) : profile(*std::move(read)), prices(partitioner::unit_prices(profile)) {}
  Priced(const Priced&) = delete;
  Priced& operator=(const Priced&) = delete;
  ir::ImportedProfile profile;
  partitioner::UnitPrices prices;
};

inline Result<ir::ImportedProfile> pipedream_profile(const std::string& name) {
  auto profile = files::read_pipedream_profile(data_path("pipedream/" + name + ".txt"));
  REQUIRE(profile.ok());
  return profile;
}

}  // namespace graphpipe::tests
