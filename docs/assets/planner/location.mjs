// The address of the page, which it changes itself: what the reader goes back to is another one.

export const addressOf = () => {
  let seen = location.search
  return {
    /** @param {string} search */
    show: search => {
      history.replaceState(null, "", `?${search}${location.hash}`)
      seen = location.search
    },
    isShown: () => location.search === seen
  }
}
