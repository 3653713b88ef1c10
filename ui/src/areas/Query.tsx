export default function Query() { return null; }
