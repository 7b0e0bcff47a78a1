// Tables of sines and cosines, which modules mostly do not train.

#include "frontend/wave_table.h"

#include <cmath>
#include <set>

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

constexpr int kRows = 5, kAngles = 3;

/// Rows for places 0, 1, ...: the sines of their angles first, or each beside its cosine.
std::vector<float> waves(bool is_interleaved, float scale = 1) {
  std::vector<float> table(2 * kRows * kAngles);
  for (int row = 0; row < kRows; ++row)
    for (int i = 0; i < kAngles; ++i) {
      const float angle = static_cast<float>(row) / std::pow(10.0F, static_cast<float>(i));
      float* const at = table.data() + static_cast<std::ptrdiff_t>(2 * kAngles * row);
      at[is_interleaved ? 2 * i : i] = scale * std::sin(angle);
      at[is_interleaved ? 2 * i + 1 : kAngles + i] = scale * std::cos(angle);
    }
  return table;
}

bool holds(const std::vector<float>& elements, int64_t rows, int64_t columns) {
  const auto* bytes = reinterpret_cast<const char*>(elements.data());
  const ir::InlineData data{std::string(bytes, elements.size() * sizeof(float))};
  return holds_waves({ir::DType::kFloat32, {ir::Dim::fixed(rows), ir::Dim::fixed(columns)}}, data, "", "");
}

/// y = x + pos, of a module with such parameters, or of a file without a signature.
Result<Imported> shifted(const std::vector<float>& table, const std::vector<std::string>& parameters,
                         const std::string& rules = "", bool says_what_trains = false) {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  request.spec.parameter_rules = ModelText(rules);
  request.spec.says_what_trains = says_what_trains;
  const std::string model = exported_model(
      "g (float[N,5,6] x, float[1,5,6] pos, float[6] scale) => (float[N,5,6] y) { z = Mul(x, scale) y = Add(z, pos) }",
      {}, parameters);
  return import_bytes(with_notes(model, {{}, {{"pos", table}}, {}}), request);
}

}  // namespace

TEST_CASE("rows of sines and cosines are known by their squares") {
  CHECK(holds(waves(false), 5, 6));
  CHECK(holds(waves(true), 5, 6));
  std::vector<float> with_token = waves(false);
  with_token.insert(with_token.begin(), 6, 0);
  CHECK(holds(with_token, 6, 6));
  CHECK_FALSE(holds(waves(false, 1.01F), 5, 6));
  CHECK_FALSE(holds(waves(false), 15, 2));                            // unit vectors of a plane
  CHECK_FALSE(holds(std::vector<float>(12, std::sqrt(0.5F)), 3, 4));  // one number that a module begins with
  CHECK_FALSE(holds({0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}, 3, 4));     // numbers to begin with
  CHECK_FALSE(holds({1.2F, 0.5F, 0.5F, 0.245F, 1, 0, 1, 0}, 2, 4));   // above 1
  std::vector<float> other = waves(true);
  other[20] += 0.01F;
  CHECK_FALSE(holds(other, 5, 6));
}

TEST_CASE("a file without a signature does not train them, and one with it warns of a parameter") {
  const auto of_torchscript = shifted(waves(true), {});
  CHECK(trained(of_torchscript) == std::set<std::string>{"scale"});
  CHECK(
      reports(of_torchscript->notes, Code::kLostByExport, "tables of sines and cosines, which are taken for buffers"));
  CHECK(trained(shifted(waves(true), {}, "pos train\n")) == std::set<std::string>{"pos", "scale"});
  CHECK(trained(shifted(std::vector<float>(30, 0.5F), {})) == std::set<std::string>{"pos", "scale"});

  const std::vector<std::string> listed = {"pos", "scale"};
  const auto of_dynamo = shifted(waves(false), listed);
  CHECK(trained(of_dynamo) == std::set<std::string>{"pos", "scale"});
  constexpr const char* kWarning = "'pos': a parameter that begins as a table of sines and cosines trains";
  CHECK(reports(of_dynamo->notes, Code::kLostByExport, kWarning));
  for (const auto& said : {shifted(waves(false), listed, "pos train\n"), shifted(waves(false), listed, "", true),
                           shifted(waves(false), {"buffer pos", "scale"})})
    CHECK_FALSE(reports(said->notes, Code::kLostByExport, "sines and cosines"));
}
