// Losses that PyTorch's exporter writes otherwise than PyTorch computes them.

#include "frontend/unlike_torch.h"

#include <doctest/doctest.h>

#include "support/text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;

namespace {

/// The calls of a multilabel margin loss that decide what it gathers, with this mark of the labels' end.
GraphBody margin_loss(const std::string& end) {
  GraphBody body;
  const auto add = [&](const std::string& result, const std::string& target, const std::string& arguments) {
    OnnxNode node;
    node.op = "Identity";
    node.outputs = {result};
    node.exported_from = text("%", result, " : [num_users=1] = call_function[target=torch.ops.aten.", target,
                              "](args = (", arguments, "), kwargs = {})");
    body.nodes.push_back(node);
  };
  add("eq", "eq.Scalar", "%y, " + end);
  add("where", "where.ScalarOther", "%eq, %arange, 5");
  add("amin", "amin.default", "%where, [-1], True");
  add("lt", "lt.Tensor", "%arange, %amin");
  add("where_1", "where.ScalarOther", "%lt, %y, 0");
  add("gather", "gather.default", "%x, -1, %where_1");
  add("where_2", "where.ScalarOther", "%lt, %y, -1");
  return body;
}

Diagnostics found(const GraphBody& body, bool refuses = true) {
  Diagnostics notes;
  report_unlike_torch(body, refuses, notes);
  return notes;
}

}  // namespace

TEST_CASE("a multilabel margin loss is known by its calls") {
  const Diagnostics refused = found(margin_loss("-1")), accepted = found(margin_loss("-1"), false);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].severity == Severity::kError);
  REQUIRE(accepted.size() == 1);
  CHECK(accepted[0].severity == Severity::kWarning);
  CHECK(found(margin_loss("-100")).empty());
}

TEST_CASE("names with spaces, which no exporter writes, are no reason to fail") {
  GraphBody body = margin_loss("-1");
  for (OnnxNode& node : body.nodes)
    for (size_t at = 0; (at = node.exported_from.find("%lt", at)) != std::string::npos; at += 4)
      node.exported_from.insert(at + 3, " x");
  CHECK(found(body).size() == 1);
}

TEST_CASE("one that leaves out what stands behind the labels' end is as PyTorch computes it") {
  GraphBody body = margin_loss("-1");
  OnnxNode masked;
  masked.op = "Where";
  masked.outputs = {"where_3"};
  masked.exported_from =
      "%where_3 : [num_users=1] = call_function[target=torch.ops.aten.where.self](args = (%lt, %z, %zero), kwargs = "
      "{})";
  body.nodes.push_back(masked);
  CHECK(found(body).empty());
}
