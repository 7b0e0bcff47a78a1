#pragma once
// ONNX models for tests, written in ONNX's text form:
//
//   <ir_version: 10, opset_import: ["" : 21]>
//   g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }
//
// Link with graphpipe_onnx.

#include <doctest/doctest.h>
#include <onnx/defs/parser.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "frontend/import_onnx.h"
#include "ir/graph_text.h"
#include "ir/verify_graph.h"
#include "support/result.h"

namespace graphpipe::testing {

inline graphpipe_onnx::ModelProto parse_onnx_text(const std::string& body) {
  const std::string header = "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"test\">\n";
  graphpipe_onnx::ModelProto model;
  const auto status = graphpipe_onnx::OnnxParser::Parse(model, (body.front() == '<' ? body : header + body).c_str());
  INFO(status.ErrorMessage());
  REQUIRE(status.IsOK());
  return model;
}

/// A folder that is removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "graphpipe-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

/// Imports bytes through a file, as a user's model would be.
inline Result<frontend::Imported> import_bytes(const std::string& bytes, frontend::ImportRequest request = {}) {
  const TemporaryFolder folder;
  folder.write("model.onnx", bytes);
  request.spec.path = ModelText(folder / "model.onnx");
  return frontend::import_onnx(request);
}

inline Result<frontend::Imported> import_text(const std::string& body, frontend::ImportRequest request = {}) {
  return import_bytes(parse_onnx_text(body).SerializeAsString(), std::move(request));
}

/// Whether one of the problems has this code and holds these words (in message, hint or origin).
inline bool reports(const Diagnostics& problems, Code code, const std::string& words) {
  for (const Diagnostic& problem : problems)
    if (problem.code == code && to_line(problem).find(words) != std::string::npos) return true;
  for (const Diagnostic& problem : problems) MESSAGE(to_line(problem));
  return false;
}

inline bool contains(const std::string& nodes, const std::string& part) {
  return nodes.find(part) != std::string::npos;
}

/// The nodes' lines of the graph text, without ids of their own and origins.
inline std::string nodes_of(const Result<frontend::Imported>& imported) {
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  std::string lines;
  for (ir::NodeId id : imported->graph.node_ids()) {
    const std::string line = ir::print_node(imported->graph, id);
    const size_t start = line.find(" = ") + 3;
    lines += line.substr(start, line.find(" from ") - start) + "\n";
  }
  return lines;
}

}  // namespace graphpipe::testing
