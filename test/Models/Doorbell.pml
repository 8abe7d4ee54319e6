/* Doorbell.pml - no wake-up is lost (runtime/host/Heap.cpp, Waiting.cpp)
 *
 * PRODUCERS set their flags and ring; one consumer looks at the flags, and
 * sleeps between looks on the number of rings. The kernel compares that number
 * and sleeps in one step (futex). Nothing times out here: what the runtime's
 * time slice would hide is a deadlock.
 *
 * What must not be done:
 *   LATE_COUNT   read the number of rings after the look at the flag
 *   LATE_SLEEPER become a sleeper after that look, so that nobody wakes it
 *   EARLY_RING   ring before the flag is set
 */

#ifndef PRODUCERS
#define PRODUCERS 3
#endif

bool flags[PRODUCERS];
byte rings = 0;
byte sleepers = 0;
bool asleep = false;

proctype producer(byte self) {
#ifdef EARLY_RING
  rings++;
  if :: sleepers > 0 -> asleep = false :: else fi;
  flags[self] = true
#else
  flags[self] = true;
  rings++;
  if :: sleepers > 0 -> asleep = false :: else fi
#endif
}

proctype consumer() {
  byte seen;
  byte peer = 0;
#ifndef LATE_SLEEPER
  sleepers++;
#endif
  do
  :: peer < PRODUCERS ->
#ifndef LATE_COUNT
     seen = rings;
#endif
     if
     :: flags[peer] -> peer++
     :: else ->
#ifdef LATE_COUNT
        seen = rings;
#endif
        atomic { if :: rings == seen -> asleep = true :: else fi }
#ifdef LATE_SLEEPER
        sleepers++;
#endif
        !asleep;
#ifdef LATE_SLEEPER
        sleepers--
#endif
     fi
  :: else -> break
  od
}

init {
  byte peer = 0;
  atomic {
    run consumer();
    do
    :: peer < PRODUCERS -> run producer(peer); peer++
    :: else -> break
    od
  }
}
