// External data may only lie where the model may point.

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

namespace pb = graphpipe_onnx;

struct External {
  std::string location = "model.data";
  std::string offset = "0";
  std::string length = "4096";
};

void add_weight(pb::ModelProto& model, const std::string& name, const External& external) {
  pb::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name(name);
  weight.set_data_type(pb::TensorProto::FLOAT);
  weight.add_dims(32);
  weight.add_dims(32);
  weight.set_data_location(pb::TensorProto::EXTERNAL);
  const auto add = [&](const char* key, const std::string& value) {
    auto& entry = *weight.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", external.location);
  add("offset", external.offset);
  add("length", external.length);
}

Result<Imported> import_model(const TemporaryFolder& folder, const pb::ModelProto& model,
                              const std::string& root = "") {
  folder.write("in/model.onnx", model.SerializeAsString());
  ImportRequest request;
  request.spec.path = ModelText(folder / "in/model.onnx");
  request.spec.trusted_root = ModelText(root);
  return import_onnx(request);
}

Result<Imported> import_with(const TemporaryFolder& folder, const External& external, const std::string& root = "") {
  pb::ModelProto model = parse_onnx_text("g (float[N,32] x, float[32,32] w) => (float[N,32] y) { y = MatMul(x, w) }");
  model.mutable_graph()->mutable_input()->RemoveLast();
  add_weight(model, "w", external);
  return import_model(folder, model, root);
}

}  // namespace

TEST_CASE("data beside the model are named by file, offset and length") {
  const TemporaryFolder folder;
  folder.write("in/model.data", std::string(8192, '\0'));
  folder.write("in/sub/a..b.data", std::string(4096, '\0'));
  const auto imported = import_with(folder, {.offset = "4096"});
  REQUIRE(imported.ok());
  const ir::Param& param = imported->graph.param(ir::ParamId(0));
  REQUIRE(std::holds_alternative<ir::FileRange>(param.data));
  const auto& range = std::get<ir::FileRange>(param.data);
  CHECK(range.path == folder / "in/model.data");
  CHECK(range.offset == 4096);
  CHECK(range.length == 4096);
  CHECK(imported->files == std::vector<std::string>{folder / "in/model.onnx", folder / "in/model.data"});
  CHECK(import_with(folder, {.location = "sub/a..b.data"}).ok());
  CHECK(import_with(folder, {.location = "./model.data"}).ok());
}

TEST_CASE("names that leave the folder are refused") {
  const TemporaryFolder folder;
  folder.write("secret", std::string(4096, '\0'));
  folder.write("in/sub/x", std::string(4096, '\0'));
  for (const std::string location :
       {"../secret", "sub/../../secret", "/etc/passwd", "", "sub/..", "..", ".", "sub", "sub/../sub/../../secret"}) {
    CAPTURE(location);
    const auto imported = import_with(folder, {.location = location});
    REQUIRE_FALSE(imported.ok());
    CHECK(imported.problems()[0].code == Code::kUnsafePath);
  }
  CHECK(reports(import_with(folder, {.location = std::string("sub/x\0y", 7)}).problems(), Code::kUnsafePath,
                "file name"));
  CHECK(reports(import_with(folder, {.location = "gone"}).problems(), Code::kUnreadableFile, "'gone'"));
}

TEST_CASE("links are refused, unless they end inside the trusted root") {
  const TemporaryFolder folder, elsewhere;
  folder.write("blobs/b", std::string(4096, '\0'));
  elsewhere.write("secret", std::string(4096, '\0'));
  folder.write("in/keep", "");
  REQUIRE(symlink("../blobs/b", (folder / "in/model.data").c_str()) == 0);
  REQUIRE(symlink((elsewhere / "").c_str(), (folder / "in/away").c_str()) == 0);
  CHECK(reports(import_with(folder, {}).problems(), Code::kUnsafePath, "by a link"));
  CHECK(import_with(folder, {}, folder / "").ok());
  CHECK(import_with(folder, {}, folder / "blobs").ok());
  CHECK_FALSE(import_with(folder, {}, folder / "in").ok());
  CHECK(reports(import_with(folder, {.location = "away/secret"}).problems(), Code::kUnsafePath, "by a link"));
  CHECK_FALSE(import_with(folder, {.location = "away/secret"}, folder / "").ok());
}

TEST_CASE("a folder whose name begins like the trusted root is not inside it") {
  const TemporaryFolder folder;
  folder.write("store2/b", std::string(4096, '\0'));
  folder.write("store/c", "");
  folder.write("in/keep", "");
  REQUIRE(symlink("../store2/b", (folder / "in/model.data").c_str()) == 0);
  CHECK_FALSE(import_with(folder, {}, folder / "store").ok());
  CHECK(import_with(folder, {}, folder / "store2").ok());
}

TEST_CASE("only regular files, and hard links are reported") {
  const TemporaryFolder folder;
  folder.write("in/keep", "");
  REQUIRE(mkfifo((folder / "in/model.data").c_str(), 0600) == 0);
  CHECK(reports(import_with(folder, {}).problems(), Code::kUnsafePath, "regular"));
  folder.write("in/one.data", std::string(4096, '\0'));
  REQUIRE(link((folder / "in/one.data").c_str(), (folder / "in/two.data").c_str()) == 0);
  // As compiled folders have them: the user owns it, and nobody else may write to it.
  REQUIRE(chmod((folder / "in/one.data").c_str(), 0644) == 0);
  const auto own = import_with(folder, {.location = "two.data"});
  REQUIRE(own.ok());
  CHECK(own->notes.empty());
  REQUIRE(chmod((folder / "in/one.data").c_str(), 0664) == 0);
  const auto writable = import_with(folder, {.location = "two.data"});
  REQUIRE(writable.ok());
  CHECK(reports(writable->notes, Code::kUnsafePath, "hard links"));
  if (geteuid() != 0) return;
  REQUIRE(chown((folder / "in/one.data").c_str(), 1, 1) == 0);
  REQUIRE(chmod((folder / "in/one.data").c_str(), 0600) == 0);
  CHECK(reports(import_with(folder, {.location = "two.data"}).problems(), Code::kUnsafePath, "hard links"));
  REQUIRE(chmod((folder / "in/one.data").c_str(), 0644) == 0);
  CHECK(import_with(folder, {.location = "two.data"}).ok());
}

TEST_CASE("offset and length are strict decimals within the file, and exactly what the tensor needs") {
  const TemporaryFolder folder;
  folder.write("in/model.data", std::string(8000, '\0'));
  for (const std::string bad : {"-1", "+0", " 0", "0x0", "1e3", "", "99999999999999999999999", "0 ", "4k"}) {
    CAPTURE(bad);
    CHECK(reports(import_with(folder, {.offset = bad}).problems(), Code::kBadModel, "decimal"));
    CHECK(reports(import_with(folder, {.length = bad}).problems(), Code::kBadModel, "decimal"));
  }
  CHECK(reports(import_with(folder, {.offset = "3905"}).problems(), Code::kBadModel, "end at byte"));
  CHECK(import_with(folder, {.offset = "3904"}).ok());
  CHECK(reports(import_with(folder, {.offset = "9000"}).problems(), Code::kBadModel, "end at byte"));
  CHECK(reports(import_with(folder, {.offset = "999999999999999999"}).problems(), Code::kBadModel, "end at byte"));
  CHECK(reports(import_with(folder, {.length = "4095"}).problems(), Code::kBadModel, "4095 bytes"));
  CHECK(reports(import_with(folder, {.length = "8000"}).problems(), Code::kBadModel, "8000 bytes"));
}

TEST_CASE("ranges that overlap are refused, also where a file is called by two names") {
  const TemporaryFolder folder;
  folder.write("in/model.data", std::string(9000, '\0'));
  const auto import_two = [&](const std::string& location, const std::string& offset) {
    pb::ModelProto model = parse_onnx_text(
        "g (float[N,32] x, float[32,32] w, float[32,32] v) => (float[N,32] y) { a = MatMul(x, w) y = MatMul(a, v) }");
    model.mutable_graph()->mutable_input()->DeleteSubrange(1, 2);
    add_weight(model, "w", {});
    add_weight(model, "v", {.location = location, .offset = offset});
    return import_model(folder, model);
  };
  CHECK(import_two("model.data", "4096").ok());
  CHECK(reports(import_two("model.data", "4000").problems(), Code::kBadModel, "overlap"));
  CHECK(reports(import_two("./model.data", "4000").problems(), Code::kBadModel, "overlap"));
  CHECK(import_two("./model.data", "4096").ok());
}

TEST_CASE("importing a large model touches none of its weights") {
  // A sparse file: had its gigabyte been read, the pages would be in memory.
  const TemporaryFolder folder;
  folder.write("in/model.data", "");
  REQUIRE(truncate((folder / "in/model.data").c_str(), int64_t{1} << 30) == 0);
  const auto resident_pages = [] {
    long size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident;
  };
  const long before = resident_pages();
  const auto imported = import_with(folder, {.offset = "1073737728"});
  REQUIRE(imported.ok());
  CHECK((resident_pages() - before) * sysconf(_SC_PAGESIZE) < 32 << 20);
}

TEST_CASE("a missing file is one problem, however many tensors lie in it") {
  pb::ModelProto model =
      parse_onnx_text("g (float[N,1] x) => (float[N,1] y) { a = Add(x, w0) b = Add(a, w1) y = Add(b, w2) }");
  for (const char* name : {"w0", "w1", "w2"}) {
    pb::TensorProto& weight = *model.mutable_graph()->add_initializer();
    weight.set_name(name);
    weight.set_data_type(pb::TensorProto::FLOAT);
    weight.add_dims(1);
    weight.set_data_location(pb::TensorProto::EXTERNAL);
    auto& entry = *weight.add_external_data();
    entry.set_key("location");
    entry.set_value("model.data");
  }
  const TemporaryFolder folder;
  folder.write("model.onnx", model.SerializeAsString());
  ImportRequest request;
  request.spec.path = ModelText(folder / "model.onnx");
  const auto imported = import_onnx(request);
  REQUIRE_FALSE(imported.ok());
  REQUIRE(imported.problems().size() == 1);
  CHECK(imported.problems()[0].origin.raw() == "w0");
  CHECK(reports(imported.problems(), Code::kUnreadableFile, "2 more"));
}
