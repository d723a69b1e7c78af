// Times the calls of one engine, by the GPU itself.
//
//   Profile profile;
//   profile.begin("gram", stream);   // ends the call before
//   …
//   for (const Engine::StageTime& t : profile.end(stream)) …
//
// Lives for one piece of work. One thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona {

class Profile {
 public:
  Profile() = default;
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void begin(std::string_view call, cudaStream_t stream);
  // Waits for the device; the longest come first.
  std::vector<Engine::StageTime> end(cudaStream_t stream);

 private:
  struct Mark {
    std::string call;
    cudaEvent_t event;
  };
  std::vector<Mark> marks_;
};

}  // namespace canzona
