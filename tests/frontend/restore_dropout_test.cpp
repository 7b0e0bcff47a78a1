// Attention drops some of its weights where the module says so, though the file of an exporter's optimiser does not.

#include "frontend/restore_dropout.h"

#include "tests/support/noted_models.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// softmax(q q^T) q for the call with these arguments behind q, k and v.
Result<Imported> attention(const std::string& arguments, const std::string& softmax = "w = Softmax(s)",
                           bool drops = true) {
  ImportRequest request;
  request.spec.dropout = drops;
  const std::string call = taken_by("sdpa|scaled_dot_product_attention.default", "%q, %q, %q" + arguments);
  return import_bytes(
      exported_model(
          "g (float[N,2,3,4] q) => (float[N,2,3,4] y) { t = Transpose<perm = [0,1,3,2]>(q) s = MatMul(q, t) " +
              softmax + " y = MatMul(w, q) }",
          {{"t", call}, {"s", call}, {"w", call}, {"k", call}, {"y", call}}, {"p"}),
      request);
}

const std::string dropped_softmax = "k = Softmax(s) ratio = Constant<value_float = 0.25>() w = Dropout(k, ratio)";

size_t dropouts(const Result<Imported>& imported) {
  const std::string nodes = nodes_of(imported);
  size_t count = 0;
  for (size_t at = nodes.find("Dropout("); at != nodes.npos; at = nodes.find("Dropout(", at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("attention that drops weights does so though its Dropout is gone") {
  const auto dropped = attention(", None, 0.25");
  CHECK(nodes_of(dropped).find("Dropout(%3) {ratio=0.25}") != std::string::npos);
  CHECK(dropouts(dropped) == 1);
  CHECK(reports(dropped->notes, Code::kLostByExport, "dropout_p=0.25"));
  for (const char* arguments : {"", ", None", ", None, 0.0", ", None, 0.0, True", ", None, 1.0", ", None, x"})
    CHECK(dropouts(attention(arguments)) == 0);
}

TEST_CASE("a Dropout that is there stays the only one, and one that is switched off goes") {
  CHECK(dropouts(attention(", None, 0.25", dropped_softmax)) == 1);
  const auto off = attention(", None, 0.25", "w = Softmax(s)", false);
  CHECK(dropouts(off) == 0);
  CHECK(reports(off->notes, Code::kLostByExport, "--dropout on trains with it"));
}

TEST_CASE("the exporter writes a Dropout of attention without its mode, which the call has") {
  const auto off = attention(", None, 0.25", dropped_softmax, false);
  CHECK(dropouts(off) == 0);
  CHECK(reports(off->notes, Code::kLostByExport, "--dropout on trains with it"));
  CHECK_FALSE(
      reports(attention(", None, 0.25", dropped_softmax)->notes, Code::kLostByExport, "the file switches it off"));
}
