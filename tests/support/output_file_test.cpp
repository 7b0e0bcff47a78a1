#include "support/output_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace graphpipe {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "graphpipe-output-XXXXXX").string()) {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  size_t count() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }

 private:
  std::string path_;
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Status write(const std::string& path, std::string_view bytes) {
  GP_TRY(OutputFile file, OutputFile::create(path));
  GP_TRY_VOID(file.write(bytes));
  return file.commit();
}

TEST_CASE("a file is replaced as a whole, keeps its permissions, and nothing else is left") {
  const Folder folder;
  const std::string path = folder / "out";
  REQUIRE(write(path, "first").ok());
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  {
    Result<OutputFile> file = OutputFile::create(path);
    REQUIRE(file.ok());
    REQUIRE(file->write("half").ok());
    CHECK(content(path) == "first");
    CHECK(folder.count() == 2);
  }
  CHECK(content(path) == "first");
  REQUIRE(write(path, "second").ok());
  CHECK(content(path) == "second");
  CHECK(folder.count() == 1);
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("a link is followed and stays; one that leads nowhere is refused") {
  const Folder folder;
  REQUIRE(write(folder / "target", "old").ok());
  fs::create_symlink("target", folder / "link");
  fs::create_symlink(folder / "link", folder / "second");
  REQUIRE(write(folder / "second", "new").ok());
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(fs::is_symlink(folder / "second"));
  CHECK(content(folder / "target") == "new");
  fs::create_symlink("nothing", folder / "dangling");
  const Status refused = write(folder / "dangling", "x");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems()[0].code == Code::kEnvironment);
  CHECK(refused.problems()[0].message.find("leads nowhere") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "nothing"));
}

TEST_CASE("a pipe stays a pipe, and is not opened to find out whether it can be") {
  const Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(check_output_path(path).ok());
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(write(path, "through").ok());
  char bytes[16] = {};
  CHECK(::read(reader, bytes, sizeof(bytes)) == 7);
  ::close(reader);
  CHECK(fs::is_fifo(path));
  CHECK(folder.count() == 1);
}

TEST_CASE("a character device is written to and stays, a disk is refused") {
  const Folder folder;
  // The numbers of /dev/null and of a first memory disk: nodes of our own, in a folder of our own.
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) {
    MESSAGE("no device can be made here: ", std::strerror(errno), "; /dev/null is only looked at");
    CHECK(check_output_path("/dev/null").ok());
    return;
  }
  REQUIRE(::mknod((folder / "disk").c_str(), S_IFBLK | 0600, ::makedev(1, 0)) == 0);
  CHECK(check_output_path(folder / "null").ok());
  const Status written = write(folder / "null", "gone");  // the folder may be mounted without devices
  CHECK(fs::is_character_file(folder / "null"));
  CHECK((written.ok() || written.problems()[0].code == Code::kEnvironment));
  const Status refused = write(folder / "disk", "x");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems()[0].message.find("disk") != std::string::npos);
  CHECK_FALSE(check_output_path(folder / "disk").ok());
  CHECK(fs::is_block_file(folder / "disk"));
  CHECK(folder.count() == 2);
}

TEST_CASE("folders, sockets and paths without a folder are refused") {
  const Folder folder;
  fs::create_directory(folder / "inner");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "socket").c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  for (const std::string& path : {folder / "inner", folder / "socket", folder / "missing/out", folder / "inner/"}) {
    CAPTURE(path);
    CHECK_FALSE(check_output_path(path).ok());
    CHECK_FALSE(write(path, "x").ok());
  }
  ::close(listener);
  CHECK(fs::is_socket(folder / "socket"));
  CHECK(check_output_path("").ok());
}

TEST_CASE("the standard output is written to, also where it is a file") {
  const Folder folder;
  std::ofstream(folder / "log") << "before ";
  const int log = ::open((folder / "log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  REQUIRE(write("/proc/self/fd/" + std::to_string(log), "after").ok());
  CHECK(::write(log, "!", 1) == 1);
  ::close(log);
  CHECK(content(folder / "log") == "before after!");
  CHECK(folder.count() == 1);
}

TEST_CASE("a read-only file is kept") {
  const Folder folder;
  std::ofstream(folder / "best") << "old";
  fs::permissions(folder / "best", fs::perms::owner_read | fs::perms::group_read);
  CHECK_FALSE(check_output_path(folder / "best").ok());
  CHECK_FALSE(write(folder / "best", "new").ok());
  CHECK(content(folder / "best") == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("one file under several names is one file") {
  const Folder folder;
  REQUIRE(write(folder / "a", "x").ok());
  fs::create_symlink("a", folder / "link");
  fs::create_hard_link(folder / "a", folder / "hard");
  REQUIRE(write(folder / "b", "x").ok());
  CHECK(is_same_file(folder / "a", folder / "./a"));
  CHECK(is_same_file(folder / "a", folder / "link"));
  CHECK(is_same_file(folder / "a", folder / "hard"));
  CHECK(is_same_file(folder / "new", folder / "./new"));
  CHECK_FALSE(is_same_file(folder / "a", folder / "b"));
  CHECK_FALSE(is_same_file("", folder / "b"));
}

}  // namespace
}  // namespace graphpipe
