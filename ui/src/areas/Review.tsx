export default function Review() { return null; }
